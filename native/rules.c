/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules in the words of the device: a mask and a value over the outer headers, and an action that sets the
 * outer EtherType. RDMA-TX tables see RDMA packets alone, and of these only RoCE v2 over IPv4 has EtherType 0x0800
 * (RoCE v1 has 0x8915), so nothing more has to be matched: neither UDP nor its destination port.
 */
#include "marker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ETHERTYPE_IPV4 0x0800

/* The first part of the match, fte_match_set_lyr_2_4: its size and the places of three fields, in bytes. */
#define OUTER_HEADERS_SIZE 64
#define AT_ETHERTYPE 6
#define AT_UDP_SOURCE_PORT 28
#define AT_DESTINATION_IPV4 60

#define CRITERIA_OUTER_HEADERS 0x01

/* One modify-header action: type in bits 31-28, field in 27-16, length in 4-0 of the first word, then the value. */
#define ACTION_SET 1u
#define FIELD_OUTER_ETHERTYPE 0x03u
#define ETHERTYPE_BITS 16u

#define PRIORITY_DESTINATION 0
#define PRIORITY_SOURCE_PORT 1

struct match {
	/* The library's own type ends in an array without a length: this is the room for it and for its content. */
	_Alignas(struct mlx5dv_flow_match_parameters) unsigned char
		room[sizeof(struct mlx5dv_flow_match_parameters) + OUTER_HEADERS_SIZE];
};

static struct mlx5dv_flow_match_parameters *parameters_of(struct match *match)
{
	struct mlx5dv_flow_match_parameters *parameters = (void *)match->room;

	parameters->match_sz = OUTER_HEADERS_SIZE;
	return parameters;
}

static void set_field(struct match *match, size_t at, const void *bytes, size_t size)
{
	memcpy(match->room + offsetof(struct mlx5dv_flow_match_parameters, match_buf) + at, bytes, size);
}

static void set_field16(struct match *match, size_t at, uint16_t value)
{
	const uint16_t big_endian = htons(value);

	set_field(match, at, &big_endian, sizeof(big_endian));
}

/* The same errno means the same thing for all three kinds of objects. */
static const char *hint_for(int error)
{
	switch (error) {
	case EPERM:
	case EACCES:
		return "the kernel wants CAP_NET_RAW in the initial user namespace: run it as root, not in a container";
	case EOPNOTSUPP:
	case ENOSYS:
	case EPROTONOSUPPORT:
		return "this kernel, firmware or card has no such RDMA-TX rules: bring kernel and firmware up to date";
	case EEXIST:
	case EBUSY:
		return "another program holds such a rule: look for a second marker with `rdma resource show ctx`";
	case EINVAL:
		return "the driver rejects the match or the action: check firmware and flow_steering_mode (hmfs)";
	case ENOMEM:
	case ENOSPC:
		return "the rule table of the device is full, or memory is short";
	default:
		return "look at the kernel log (dmesg) for mlx5";
	}
}

static int refused(const char *what)
{
	const int error = errno;

	report(SEVERITY_ERROR, error, hint_for(error), "cannot create %s", what);
	return error == EPERM || error == EACCES ? EXIT_NO_PERMISSION : EXIT_REFUSED;
}

static int create_matcher(struct rule_set *set, struct ibv_context *context, uint16_t priority, struct match *mask,
			  const char *what, struct mlx5dv_flow_matcher **matcher)
{
	struct mlx5dv_flow_matcher_attr attributes = {
		.type = IBV_FLOW_ATTR_NORMAL,
		.priority = priority,
		.match_criteria_enable = CRITERIA_OUTER_HEADERS,
		.match_mask = parameters_of(mask),
		.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE,
		.ft_type = MLX5DV_FLOW_TABLE_TYPE_RDMA_TX,
	};

	*matcher = mlx5dv_create_flow_matcher(context, &attributes);
	if (*matcher == NULL)
		return refused(what);
	set->objects[set->object_count++] = (struct rule_object){.kind = OBJECT_MATCHER, .as.matcher = *matcher};
	return EXIT_DONE;
}

static int create_action(struct rule_set *set, struct ibv_context *context, uint16_t tag)
{
	const uint32_t words[2] = {
		htonl(ACTION_SET << 28 | FIELD_OUTER_ETHERTYPE << 16 | ETHERTYPE_BITS),
		htonl(tag),
	};
	struct ibv_flow_action **slot = &set->action_of_tag[tag - TAG_FIRST];
	uint64_t encoded;

	if (*slot != NULL)
		return EXIT_DONE;
	memcpy(&encoded, words, sizeof(encoded));
	*slot = mlx5dv_create_flow_action_modify_header(context, sizeof(encoded), &encoded,
							MLX5DV_FLOW_TABLE_TYPE_RDMA_TX);
	if (*slot == NULL) {
		char what[64];

		(void)snprintf(what, sizeof(what), "the action that sets EtherType 0x%04x", tag);
		return refused(what);
	}
	set->objects[set->object_count++] = (struct rule_object){.kind = OBJECT_ACTION, .as.action = *slot};
	return EXIT_DONE;
}

static int create_flow(struct rule_set *set, struct mlx5dv_flow_matcher *matcher, struct match *value, uint16_t tag,
		       const char *what)
{
	struct mlx5dv_flow_action_attr action = {
		.type = MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION,
		.action = set->action_of_tag[tag - TAG_FIRST],
	};
	struct ibv_flow *flow = mlx5dv_create_flow(matcher, parameters_of(value), 1, &action);

	if (flow == NULL)
		return refused(what);
	set->objects[set->object_count++] = (struct rule_object){.kind = OBJECT_FLOW, .as.flow = flow};
	return EXIT_DONE;
}

static int create_destination_matcher(struct rule_set *set, struct ibv_context *context,
				      struct mlx5dv_flow_matcher **matcher)
{
	const struct in_addr whole_address = {.s_addr = INADDR_NONE};
	struct match mask = {{0}};

	set_field16(&mask, AT_ETHERTYPE, 0xffff);
	set_field(&mask, AT_DESTINATION_IPV4, &whole_address.s_addr, sizeof(whole_address.s_addr));
	return create_matcher(set, context, PRIORITY_DESTINATION, &mask, "the matcher of destinations", matcher);
}

static int create_source_port_matcher(struct rule_set *set, struct ibv_context *context,
				      struct mlx5dv_flow_matcher **matcher)
{
	struct match mask = {{0}};

	set_field16(&mask, AT_ETHERTYPE, 0xffff);
	set_field16(&mask, AT_UDP_SOURCE_PORT, 0xffff);
	return create_matcher(set, context, PRIORITY_SOURCE_PORT, &mask, "the matcher of source ports", matcher);
}

static int create_destination_flow(struct rule_set *set, struct mlx5dv_flow_matcher *matcher,
				   const struct destination *destination)
{
	struct match value = {{0}};
	char address[INET_ADDRSTRLEN];
	char what[64 + INET_ADDRSTRLEN];

	(void)inet_ntop(AF_INET, &destination->address, address, sizeof(address));
	(void)snprintf(what, sizeof(what), "the rule for %s (EtherType 0x%04x)", address, destination->tag);
	set_field16(&value, AT_ETHERTYPE, ETHERTYPE_IPV4);
	set_field(&value, AT_DESTINATION_IPV4, &destination->address.s_addr, sizeof(destination->address.s_addr));
	return create_flow(set, matcher, &value, destination->tag, what);
}

static int create_source_port_flow(struct rule_set *set, struct mlx5dv_flow_matcher *matcher, uint16_t port,
				   uint16_t tag)
{
	struct match value = {{0}};
	char what[64];

	(void)snprintf(what, sizeof(what), "the rule for source port %u (EtherType 0x%04x)", port, tag);
	set_field16(&value, AT_ETHERTYPE, ETHERTYPE_IPV4);
	set_field16(&value, AT_UDP_SOURCE_PORT, port);
	return create_flow(set, matcher, &value, tag, what);
}

/* Matchers and actions change no packet: they all come first, so that the rules follow each other closely. */
int install_rules(struct rule_set *set, struct ibv_context *context, const struct config *config, bool (*stop)(void))
{
	struct mlx5dv_flow_matcher *destination_matcher = NULL;
	struct mlx5dv_flow_matcher *source_port_matcher = NULL;
	int result = EXIT_DONE;

	if (config->destination_count > 0 && !stop())
		result = create_destination_matcher(set, context, &destination_matcher);
	if (result == EXIT_DONE && config->source_port != 0 && !stop())
		result = create_source_port_matcher(set, context, &source_port_matcher);
	for (size_t i = 0; i < config->destination_count && result == EXIT_DONE && !stop(); i++)
		result = create_action(set, context, config->destinations[i].tag);
	if (result == EXIT_DONE && config->source_port != 0 && !stop())
		result = create_action(set, context, config->source_port_tag);
	for (size_t i = 0; i < config->destination_count && result == EXIT_DONE && !stop(); i++)
		result = create_destination_flow(set, destination_matcher, &config->destinations[i]);
	if (result == EXIT_DONE && config->source_port != 0 && !stop())
		result = create_source_port_flow(set, source_port_matcher, config->source_port,
						 config->source_port_tag);
	return result;
}

static int destroy_object(const struct rule_object *object)
{
	switch (object->kind) {
	case OBJECT_FLOW:
		return ibv_destroy_flow(object->as.flow);
	case OBJECT_ACTION:
		return ibv_destroy_flow_action(object->as.action);
	case OBJECT_MATCHER:
		return mlx5dv_destroy_flow_matcher(object->as.matcher);
	}
	return EINVAL;
}

int remove_rules(struct rule_set *set, bool device_gone)
{
	static const char *const NAMES[] = {
		[OBJECT_MATCHER] = "a matcher",
		[OBJECT_ACTION] = "an action",
		[OBJECT_FLOW] = "a rule",
	};
	int result = EXIT_DONE;

	while (set->object_count > 0) {
		const struct rule_object *object = &set->objects[--set->object_count];
		const int error = destroy_object(object);

		if (error != 0 && !device_gone) {
			report(SEVERITY_ERROR, error, "the kernel removes it when this process ends, which is now",
			       "cannot remove %s", NAMES[object->kind]);
			result = EXIT_LEFT_BEHIND;
		}
	}
	return result;
}
