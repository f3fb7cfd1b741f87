// SPDX-License-Identifier: GPL-2.0
/*
 * soft-RoCE derives a system_image_guid from each device's MAC; the functions of a
 * ConnectX-7 host report one. An RDMA client sees every device as it appears and
 * gives those on top of our functions the function's own GUID.
 */
#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>

#include "fakecx7.h"

static int (*fcx_soft_query)(struct ib_device *ibdev, struct ib_device_attr *attr, struct ib_udata *udata);

static struct fcx *fcx_of(struct ib_device *ibdev)
{
	struct net_device *nd = ib_device_get_netdev(ibdev, 1);
	struct fcx *f = NULL;

	if (nd && nd->netdev_ops == &fcx_netdev_ops)
		f = ((struct fcx_netdev *)netdev_priv(nd))->fcx;
	dev_put(nd);
	return f;
}

static int fcx_query_device(struct ib_device *ibdev, struct ib_device_attr *attr, struct ib_udata *udata)
{
	struct fcx *f = fcx_of(ibdev);
	int err = fcx_soft_query(ibdev, attr, udata);

	if (!err && f)
		attr->sys_image_guid = cpu_to_be64(f->guid);
	return err;
}

static int fcx_rdma_add(struct ib_device *ibdev)
{
	struct fcx *f = fcx_of(ibdev);

	if (!f || !ibdev->ops.query_device)
		return -EOPNOTSUPP;	/* another's device */
	fcx_soft_query = ibdev->ops.query_device;
	ibdev->ops.query_device = fcx_query_device;
	ibdev->attrs.sys_image_guid = cpu_to_be64(f->guid);
	return 0;
}

static void fcx_rdma_remove(struct ib_device *ibdev, void *data)
{
	ibdev->ops.query_device = fcx_soft_query;
}

static struct ib_client fcx_client = {
	.name = KBUILD_MODNAME, .add = fcx_rdma_add, .remove = fcx_rdma_remove,
};

int fcx_rdma_init(void)
{
	return ib_register_client(&fcx_client);
}

void fcx_rdma_exit(void)
{
	ib_unregister_client(&fcx_client);
}
