/* SPDX-License-Identifier: Apache-2.0 */
#include "marker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_TEXT_MAX (INET_ADDRSTRLEN - 1)
#define DEVICE_NAME_MAX 63

static const char HELP[] =
	"usage: " MARKER_NAME " --device DEVICE [--rule IPV4=ETHERTYPE ...] [--source-port PORT=ETHERTYPE]\n"
	"                          [--managed] [--state-dir DIR] [--check]\n"
	"\n"
	"Holds RDMA-TX rules on one RDMA device that rewrite the EtherType of outgoing RoCE v2 packets, until SIGTERM,\n"
	"SIGINT or SIGHUP; then removes them. At least one of --rule and --source-port has to be there.\n"
	"\n"
	"  --device DEVICE           the RDMA device, as `rdma dev` names it\n"
	"  --rule IPV4=ETHERTYPE     tag packets to this address; repeatable, one a destination, at most 64\n"
	"  --source-port PORT=ETHERTYPE\n"
	"                            tag every packet with this UDP source port (49152 to 65535), whatever its\n"
	"                            destination; --rule goes first where both match\n"
	"  --managed                 a service manager owns the lifetime; without it the marker ends with the process\n"
	"                            that started it\n"
	"  --state-dir DIR           where the lock of the device lies (default " MARKER_STATE_DIR ")\n"
	"  --check                   check the arguments and the device, install nothing\n"
	"  --version, --help\n"
	"\n"
	"ETHERTYPE is 0x88b5 to 0x88b8: 0x88b4 plus the number of relays that the packet still has to cross.\n"
	"\n"
	"exit status: 0 stopped and all removed, or check passed; 64 wrong usage; 69 no such device, or one that cannot\n"
	"carry such rules; 70 a rule could not be removed; 71 the system refused a call; 73 state directory missing or\n"
	"unsafe; 74 the device went away; 75 another marker holds the device; 76 the driver refused a rule;\n"
	"77 permission missing\n";

static _Noreturn void refuse(const char *hint, const char *what, const char *value)
{
	if (value != NULL)
		report(SEVERITY_ERROR, 0, hint, "%s: '%s'", what, value);
	else
		report(SEVERITY_ERROR, 0, hint, "%s", what);
	exit(EXIT_USAGE);
}

/* Digits of `base` alone, no sign and no space: strtoul() by itself lets both through. */
static bool parse_number(const char *text, const char *digits, int base, unsigned long *number)
{
	if (*text == '\0' || strspn(text, digits) != strlen(text))
		return false;
	errno = 0;
	*number = strtoul(text, NULL, base);
	return errno == 0;
}

static uint16_t parse_tag(const char *argument, const char *text)
{
	unsigned long tag = 0;

	if (strncmp(text, "0x", 2) != 0 || !parse_number(text + 2, "0123456789abcdefABCDEF", 16, &tag))
		refuse("write the EtherType in hexadecimal, as 0x88b5", "not an EtherType", argument);
	if (tag < TAG_FIRST || tag > TAG_LAST)
		refuse("a tag is 0x88b4 plus the relays to cross: 0x88b5, 0x88b6, 0x88b7 or 0x88b8",
		       "EtherType out of range", argument);
	return (uint16_t)tag;
}

/* Returns the part after the first '='; the caller takes what stands before it. */
static const char *split(const char *argument, const char *form)
{
	const char *equals = strchr(argument, '=');

	if (equals == NULL)
		refuse(form, "no '=' in the argument", argument);
	return equals + 1;
}

static void add_destination(struct config *config, const char *argument)
{
	const char *tag_text = split(argument, "write it as --rule 10.10.2.11=0x88b5");
	const size_t length = (size_t)(tag_text - 1 - argument);
	char address_text[ADDRESS_TEXT_MAX + 1] = {0};
	struct destination *destination = &config->destinations[config->destination_count];
	uint32_t host_order;

	if (config->destination_count == MAX_DESTINATIONS)
		refuse("one device of a ring or a line never needs so many", "more than 64 --rule arguments", NULL);
	if (length <= ADDRESS_TEXT_MAX)
		memcpy(address_text, argument, length);
	if (length > ADDRESS_TEXT_MAX || inet_pton(AF_INET, address_text, &destination->address) != 1)
		refuse("write the address as four decimal numbers, as 10.10.2.11", "not an IPv4 address", argument);
	host_order = ntohl(destination->address.s_addr);
	/* 0/8, 127/8, and everything from multicast up never is the address of a peer's function. */
	if (host_order >> 24 == 0 || host_order >> 24 == 127 || host_order >> 28 >= 0xe)
		refuse("give the address of the far node's fabric function", "not the address of a host", argument);
	for (size_t i = 0; i < config->destination_count; i++)
		if (config->destinations[i].address.s_addr == destination->address.s_addr)
			refuse("give each destination once: a packet can carry one tag", "destination given twice",
			       argument);
	destination->tag = parse_tag(argument, tag_text);
	config->destination_count++;
}

static void set_source_port(struct config *config, const char *argument)
{
	const char *tag_text = split(argument, "write it as --source-port 65535=0x88b5");
	const size_t length = (size_t)(tag_text - 1 - argument);
	char port_text[sizeof("65535")] = {0};
	unsigned long port = 0;

	if (config->source_port != 0)
		refuse("one device takes one source-port rule", "--source-port given twice", argument);
	if (length < sizeof(port_text))
		memcpy(port_text, argument, length);
	if (!parse_number(port_text, "0123456789", 10, &port))
		refuse("write the UDP port in decimal, as 65535", "not a port", argument);
	if (port < SOURCE_PORT_FIRST || port > SOURCE_PORT_LAST)
		refuse("RoCE v2 packets carry source ports from 49152 to 65535 (flow label 16383 is 65535)",
		       "no RDMA packet carries this source port", argument);
	config->source_port = (uint16_t)port;
	config->source_port_tag = parse_tag(argument, tag_text);
}

static void set_device(struct config *config, const char *argument)
{
	static const char NAME_CHARACTERS[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
	const size_t length = strlen(argument);

	if (config->device != NULL)
		refuse("one process owns one device: start another for the next", "--device given twice", argument);
	/* The name becomes part of a file name, hence the narrow alphabet. */
	if (length == 0 || length > DEVICE_NAME_MAX || argument[0] == '.' ||
	    strspn(argument, NAME_CHARACTERS) != length)
		refuse("see `rdma dev` for the names, as rocep1s0f0", "not the name of an RDMA device", argument);
	config->device = argument;
}

static void set_state_dir(struct config *config, const char *argument)
{
	if (config->state_dir != NULL)
		refuse("all markers of a host share one", "--state-dir given twice", argument);
	if (argument[0] != '/')
		refuse("give an absolute path, as " MARKER_STATE_DIR, "not an absolute path", argument);
	config->state_dir = argument;
}

static const struct option_with_value {
	const char *name;
	void (*apply)(struct config *config, const char *argument);
} OPTIONS[] = {
	{"--device", set_device},
	{"--rule", add_destination},
	{"--source-port", set_source_port},
	{"--state-dir", set_state_dir},
};

/*
 * Written out because getopt_long() accepts abbreviations, and whoever compares a running marker with the planned
 * one reads its command line: there has to be one spelling.
 */
static bool apply_option_with_value(struct config *config, char *const argv[], int *index)
{
	const char *word = argv[*index];

	for (size_t i = 0; i < sizeof(OPTIONS) / sizeof(OPTIONS[0]); i++) {
		const size_t length = strlen(OPTIONS[i].name);

		if (strncmp(word, OPTIONS[i].name, length) != 0)
			continue;
		if (word[length] == '=') {
			OPTIONS[i].apply(config, word + length + 1);
			return true;
		}
		if (word[length] == '\0') {
			if (argv[*index + 1] == NULL)
				refuse("see --help", "no value after", word);
			*index += 1;
			OPTIONS[i].apply(config, argv[*index]);
			return true;
		}
	}
	return false;
}

static void warn_about_foreign_tag(uint16_t tag)
{
	if (tag > TAG_LAST_EXPERIMENTAL)
		report(SEVERITY_WARNING, 0,
		       "right for three or four relays; make sure that nothing else on these cables uses it",
		       "EtherType 0x%04x is registered to others", tag);
}

static _Noreturn void print_and_exit(const char *text)
{
	/* A help text that reached nobody is a failure that a script should see. */
	exit(fputs(text, stdout) < 0 || fflush(stdout) != 0 ? EXIT_SYSTEM : EXIT_DONE);
}

void parse_arguments(int argc, char *const argv[], struct config *config)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			print_and_exit(HELP);
		else if (strcmp(argv[i], "--version") == 0)
			print_and_exit(MARKER_NAME " " MARKER_VERSION "\n");
		else if (strcmp(argv[i], "--managed") == 0)
			config->managed = true;
		else if (strcmp(argv[i], "--check") == 0)
			config->check = true;
		else if (!apply_option_with_value(config, argv, &i))
			refuse("see --help", "unknown argument", argv[i]);
	}
	if (config->device == NULL)
		refuse("name the RDMA device, as --device rocep1s0f0", "no --device", NULL);
	if (config->destination_count == 0 && config->source_port == 0)
		refuse("give at least one --rule IPV4=ETHERTYPE, or --source-port PORT=ETHERTYPE", "no rule", NULL);
	if (config->state_dir == NULL)
		config->state_dir = MARKER_STATE_DIR;
	report_setup(config->device, config->managed);
	for (size_t i = 0; i < config->destination_count; i++)
		warn_about_foreign_tag(config->destinations[i].tag);
	warn_about_foreign_tag(config->source_port_tag);
}
