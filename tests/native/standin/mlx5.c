/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char *hex(const void *bytes, size_t size, char *text)
{
	const unsigned char *byte = bytes;

	text[0] = '\0';
	for (size_t i = 0; i < size; i++)
		sprintf(text + 2 * i, "%02x", byte[i]);
	return text;
}

bool mlx5dv_is_supported(struct ibv_device *device)
{
	return ((struct standin_device *)device)->is_mlx5;
}

struct mlx5dv_flow_matcher *mlx5dv_create_flow_matcher(struct ibv_context *context,
						       struct mlx5dv_flow_matcher_attr *attributes)
{
	char text[2 * 512 + 1];
	struct mlx5dv_flow_matcher *matcher = malloc(sizeof(*matcher));
	const int id = standin_born();
	const int error = standin_call(
		"create_flow_matcher",
		"\"id\": %d, \"type\": %d, \"flags\": %u, \"priority\": %u, \"criteria\": %u, \"comp_mask\": %llu, "
		"\"ft_type\": %d, \"mask\": \"%s\"",
		id, (int)attributes->type, attributes->flags, attributes->priority, attributes->match_criteria_enable,
		(unsigned long long)attributes->comp_mask, (int)attributes->ft_type,
		hex(attributes->match_mask->match_buf, attributes->match_mask->match_sz, text));

	if (error != 0) {
		standin_died();
		free(matcher);
		errno = error;
		return NULL;
	}
	*matcher = (struct mlx5dv_flow_matcher){.context = context, .id = id};
	return matcher;
}

int mlx5dv_destroy_flow_matcher(struct mlx5dv_flow_matcher *matcher)
{
	const int error = standin_call("destroy_flow_matcher", "\"id\": %d", matcher->id);

	if (error != 0)
		return error;
	if (matcher->users != 0)
		return EBUSY;
	standin_died();
	free(matcher);
	return 0;
}

struct ibv_flow_action *mlx5dv_create_flow_action_modify_header(struct ibv_context *context, size_t size,
								uint64_t actions[],
								enum mlx5dv_flow_table_type ft_type)
{
	char text[2 * 64 + 1];
	struct standin_action *action = malloc(sizeof(*action));
	const int id = standin_born();
	const int error = standin_call("create_modify_header", "\"id\": %d, \"ft_type\": %d, \"actions\": \"%s\"", id,
				       (int)ft_type, hex(actions, size, text));

	if (error != 0) {
		standin_died();
		free(action);
		errno = error;
		return NULL;
	}
	*action = (struct standin_action){.action.context = context, .id = id};
	return &action->action;
}

/*
 * Newer headers turn mlx5dv_create_flow() into a call of __mlx5dv_create_flow(), which is also told the size of the
 * action's structure: both are here, so that the marker runs on these stand-ins whatever headers it was built with.
 */
#undef mlx5dv_create_flow
struct ibv_flow *mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value,
				    size_t count, struct mlx5dv_flow_action_attr actions[]);
struct ibv_flow *__mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value,
				      size_t count, struct mlx5dv_flow_action_attr actions[], size_t action_size);

struct ibv_flow *mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value,
				    size_t count, struct mlx5dv_flow_action_attr actions[])
{
	char text[2 * 512 + 1];
	struct standin_action *action = (struct standin_action *)actions[0].action;
	struct standin_flow *flow = malloc(sizeof(*flow));
	const int id = standin_born();
	const int error =
		standin_call("create_flow",
			     "\"id\": %d, \"matcher\": %d, \"value\": \"%s\", \"action_count\": %zu, \"action_type\": %d, "
			     "\"action\": %d",
			     id, matcher->id, hex(value->match_buf, value->match_sz, text), count,
			     (int)actions[0].type, action->id);

	if (error != 0) {
		standin_died();
		free(flow);
		errno = error;
		return NULL;
	}
	*flow = (struct standin_flow){.flow.context = matcher->context, .id = id, .matcher = matcher, .action = action};
	matcher->users++;
	action->users++;
	return &flow->flow;
}

struct ibv_flow *__mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value,
				      size_t count, struct mlx5dv_flow_action_attr actions[], size_t action_size)
{
	if (action_size != sizeof(actions[0]))
		abort();
	return mlx5dv_create_flow(matcher, value, count, actions);
}
