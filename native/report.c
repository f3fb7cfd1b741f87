/* SPDX-License-Identifier: Apache-2.0 */
#include "marker.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *subject;
static bool for_the_journal;

void report_setup(const char *device, bool managed)
{
	subject = device;
	for_the_journal = managed;
}

static void start_line(enum severity severity)
{
	if (for_the_journal)
		(void)fprintf(stderr, "<%d>", (int)severity);
}

void report(enum severity severity, int error, const char *hint, const char *format, ...)
{
	va_list arguments;

	start_line(severity);
	(void)fputs(MARKER_NAME ": ", stderr);
	if (subject != NULL)
		(void)fprintf(stderr, "%s: ", subject);
	if (severity == SEVERITY_WARNING)
		(void)fputs("warning: ", stderr);
	va_start(arguments, format);
	(void)vfprintf(stderr, format, arguments);
	va_end(arguments);
	if (error != 0) {
		const char *name = strerrorname_np(error);

		(void)fprintf(stderr, ": %s (%s)", strerror(error), name != NULL ? name : "unknown errno");
	}
	(void)fputc('\n', stderr);
	if (hint != NULL) {
		start_line(severity);
		(void)fprintf(stderr, "  hint: %s\n", hint);
	}
}
