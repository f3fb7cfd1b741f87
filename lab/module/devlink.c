// SPDX-License-Identifier: GPL-2.0
/* Driver parameters, driver_reinit and the eswitch mode of a function. */
#include <linux/delay.h>
#include <linux/sched/signal.h>

#include "fakecx7.h"

#define FCX_DEFAULT_QUEUES	4
#define FCX_DEFAULT_QUEUE_SIZE	1024

enum {
	FCX_PARAM_QUEUES = DEVLINK_PARAM_GENERIC_ID_MAX + 1,
	FCX_PARAM_QUEUE_SIZE,
	FCX_PARAM_STEERING,
};

static const char * const fcx_steering[] = { "dmfs", "smfs", "hmfs" };
#define FCX_HMFS	2

const char *fcx_steering_name(const struct fcx *f)
{
	return fcx_steering[f->steering];
}

static int fcx_steering_get(struct devlink *dl, u32 id, struct devlink_param_gset_ctx *ctx)
{
	strscpy(ctx->val.vstr, fcx_steering_name(devlink_priv(dl)), sizeof(ctx->val.vstr));
	return 0;
}

static int fcx_steering_set(struct devlink *dl, u32 id, struct devlink_param_gset_ctx *ctx,
			    struct netlink_ext_ack *extack)
{
	struct fcx *f = devlink_priv(dl);

	f->steering = match_string(fcx_steering, ARRAY_SIZE(fcx_steering), ctx->val.vstr);
	return 0;
}

static int fcx_steering_validate(struct devlink *dl, u32 id, union devlink_param_value val,
				 struct netlink_ext_ack *extack)
{
	if (match_string(fcx_steering, ARRAY_SIZE(fcx_steering), val.vstr) >= 0)
		return 0;
	FCX_ERR(extack, "Bad parameter: supported values are [\"dmfs\", \"smfs\", \"hmfs\"]");
	return -EINVAL;
}

static int fcx_queues_validate(struct devlink *dl, u32 id, union devlink_param_value val,
			       struct netlink_ext_ack *extack)
{
	return val.vu32 ? 0 : -EINVAL;
}

static int fcx_queue_size_validate(struct devlink *dl, u32 id, union devlink_param_value val,
				   struct netlink_ext_ack *extack)
{
	if (!is_power_of_2(val.vu32)) {
		FCX_ERR(extack, "Value is not power of two");
		return -EINVAL;
	}
	if (val.vu32 > FCX_MAX_QUEUE) {
		NL_SET_ERR_MSG_FMT(extack, FCX_DRV ": Maximum hairpin queue size is %u", FCX_MAX_QUEUE);
		return -EINVAL;
	}
	return 0;
}

static const struct devlink_param fcx_params[] = {
	DEVLINK_PARAM_DRIVER(FCX_PARAM_QUEUES, "hairpin_num_queues", DEVLINK_PARAM_TYPE_U32,
			     BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL, fcx_queues_validate),
	DEVLINK_PARAM_DRIVER(FCX_PARAM_QUEUE_SIZE, "hairpin_queue_size", DEVLINK_PARAM_TYPE_U32,
			     BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL, fcx_queue_size_validate),
	DEVLINK_PARAM_DRIVER(FCX_PARAM_STEERING, "flow_steering_mode", DEVLINK_PARAM_TYPE_STRING,
			     BIT(DEVLINK_PARAM_CMODE_RUNTIME), fcx_steering_get, fcx_steering_set,
			     fcx_steering_validate),
};

/* take the pending driverinit values into effect */
void fcx_driver_values(struct fcx *f)
{
	struct devlink *dl = priv_to_devlink(f);
	union devlink_param_value v;

	if (!devl_param_driverinit_value_get(dl, FCX_PARAM_QUEUES, &v))
		f->num_queues = v.vu32;
	if (!devl_param_driverinit_value_get(dl, FCX_PARAM_QUEUE_SIZE, &v))
		f->queue_size = v.vu32;
}

/* ------------------------------------------------------------- reload */

/* a firmware that does not answer: until the fault is lifted, or the caller killed */
static int fcx_hang(struct fcx *f)
{
	enum fcx_reload_fault fault;

	while ((fault = READ_ONCE(f->fault.reload)) >= FCX_RELOAD_HANG) {
		if (fault == FCX_RELOAD_HANG && fatal_signal_pending(current))
			return -EINTR;
		msleep(100);
	}
	return 0;
}

static int fcx_reload_down(struct devlink *dl, bool netns_change, enum devlink_reload_action action,
			   enum devlink_reload_limit limit, struct netlink_ext_ack *extack)
{
	struct fcx *f = devlink_priv(dl);
	int err;

	switch (f->fault.reload) {
	case FCX_RELOAD_BUSY:
		FCX_ERR(extack, "injected reload fault");
		return -EBUSY;
	case FCX_RELOAD_SF:
		FCX_ERR(extack, "reload is unsupported when SFs are allocated");
		return -EOPNOTSUPP;
	case FCX_RELOAD_LAG:
		FCX_ERR(extack, "reload is unsupported in Lag mode");
		return -EOPNOTSUPP;
	case FCX_RELOAD_HANG:
	case FCX_RELOAD_HANG_HARD:
		err = fcx_hang(f);
		if (err)
			return err;
		break;
	default:
		break;
	}
	fcx_netdev_down(f);
	return 0;
}

static int fcx_reload_up(struct devlink *dl, enum devlink_reload_action action,
			 enum devlink_reload_limit limit, u32 *done, struct netlink_ext_ack *extack)
{
	struct fcx *f = devlink_priv(dl);

	if (f->fault.reload == FCX_RELOAD_FAIL) {
		FCX_ERR(extack, "injected fault: the function does not come back");
		return -EIO;
	}
	*done = BIT(DEVLINK_RELOAD_ACTION_DRIVER_REINIT);
	return fcx_netdev_up(f);
}

/* ------------------------------------------------------------ eswitch */

static int fcx_eswitch_mode_get(struct devlink *dl, u16 *mode)
{
	*mode = DEVLINK_ESWITCH_MODE_LEGACY;
	return 0;
}

static int fcx_eswitch_mode_set(struct devlink *dl, u16 mode, struct netlink_ext_ack *extack)
{
	if (mode == DEVLINK_ESWITCH_MODE_LEGACY)
		return 0;
	FCX_ERR(extack, "switchdev is not modelled");
	return -EOPNOTSUPP;
}

static int fcx_eswitch_inline_get(struct devlink *dl, u8 *mode)
{
	*mode = DEVLINK_ESWITCH_INLINE_MODE_NONE;
	return 0;
}

static int fcx_eswitch_encap_get(struct devlink *dl, enum devlink_eswitch_encap_mode *mode)
{
	*mode = DEVLINK_ESWITCH_ENCAP_MODE_BASIC;
	return 0;
}

static int fcx_info_get(struct devlink *dl, struct devlink_info_req *req, struct netlink_ext_ack *extack)
{
	return devlink_info_version_running_put(req, "fw.version", "28.45.4028");
}

static const struct devlink_ops fcx_devlink_ops = {
	.reload_actions			= BIT(DEVLINK_RELOAD_ACTION_DRIVER_REINIT),
	.reload_down			= fcx_reload_down,
	.reload_up			= fcx_reload_up,
	.eswitch_mode_get		= fcx_eswitch_mode_get,
	.eswitch_mode_set		= fcx_eswitch_mode_set,
	.eswitch_inline_mode_get	= fcx_eswitch_inline_get,
	.eswitch_encap_mode_get		= fcx_eswitch_encap_get,
	.info_get			= fcx_info_get,
};

/* ------------------------------------------------------- coming, going */

struct fcx *fcx_devlink_alloc(struct pci_dev *pdev)
{
	struct devlink *dl = devlink_alloc(&fcx_devlink_ops, sizeof(struct fcx), &pdev->dev);
	struct fcx *f;

	if (!dl)
		return NULL;
	f = devlink_priv(dl);
	f->pdev = pdev;
	f->steering = FCX_HMFS;
	mutex_init(&f->lock);
	INIT_LIST_HEAD(&f->rules);
	INIT_LIST_HEAD(&f->hairpins);
	return f;
}

/* register the devlink instance with its net device; frees @f on failure */
int fcx_devlink_register(struct fcx *f)
{
	struct devlink *dl = priv_to_devlink(f);
	int err;

	devl_lock(dl);
	err = devl_params_register(dl, fcx_params, ARRAY_SIZE(fcx_params));
	if (err)
		goto free;
	devl_param_driverinit_value_set(dl, FCX_PARAM_QUEUES,
					(union devlink_param_value){ .vu32 = FCX_DEFAULT_QUEUES });
	devl_param_driverinit_value_set(dl, FCX_PARAM_QUEUE_SIZE,
					(union devlink_param_value){ .vu32 = FCX_DEFAULT_QUEUE_SIZE });
	err = fcx_netdev_up(f);
	if (err)
		goto params;
	devl_register(dl);
	devl_unlock(dl);
	return 0;
params:
	devl_params_unregister(dl, fcx_params, ARRAY_SIZE(fcx_params));
free:
	devl_unlock(dl);
	devlink_free(dl);
	return err;
}

void fcx_devlink_unregister(struct fcx *f)
{
	struct devlink *dl = priv_to_devlink(f);

	devl_lock(dl);
	devl_unregister(dl);
	fcx_netdev_down(f);
	devl_params_unregister(dl, fcx_params, ARRAY_SIZE(fcx_params));
	devl_unlock(dl);
	devlink_free(dl);
}
