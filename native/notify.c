/* SPDX-License-Identifier: Apache-2.0 */
#include "marker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const size_t state_length = strlen(state);
	size_t path_length;
	ssize_t sent;
	int error;
	int descriptor;

	if (path == NULL || path[0] == '\0')
		return EXIT_DONE;
	path_length = strlen(path);
	if ((path[0] != '/' && path[0] != '@') || path_length >= sizeof(address.sun_path)) {
		report(SEVERITY_ERROR, 0, "unset it, or let the service manager set it", "NOTIFY_SOCKET is not an address: '%s'",
		       path);
		return EXIT_SYSTEM;
	}
	memcpy(address.sun_path, path, path_length);
	if (path[0] == '@')
		address.sun_path[0] = '\0'; /* the abstract namespace; its names end where the length says */
	descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (descriptor < 0) {
		report(SEVERITY_ERROR, errno, NULL, "cannot open a socket to the service manager");
		return EXIT_SYSTEM;
	}
	sent = sendto(descriptor, state, state_length, MSG_NOSIGNAL, (const struct sockaddr *)&address,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path_length));
	error = errno;
	(void)close(descriptor);
	if (sent == (ssize_t)state_length)
		return EXIT_DONE;
	report(SEVERITY_ERROR, error, "is the service manager still there?", "cannot reach the service manager at %s", path);
	return EXIT_SYSTEM;
}
