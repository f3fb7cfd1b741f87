// SPDX-License-Identifier: GPL-2.0
/* The net device of a function, its ethtool face and its DCB trust state. */
#include <linux/dcbnl.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <net/dcbnl.h>

#include "fakecx7.h"

#define FCX_RX_BACKLOG	16384
#define FCX_MAX_MTU	9978
#define FCX_FIRMWARE	"28.45.4028 (FAKE0000001)"

static bool hw_tc_offload = true;
module_param(hw_tc_offload, bool, 0644);
MODULE_PARM_DESC(hw_tc_offload, "ethtool's hw-tc-offload as a net device comes up");

/* mlx5's names, in the order of enum fcx_counter */
static const char fcx_strings[FCX_COUNTERS][ETH_GSTRING_LEN] = {
	"rx_packets_phy", "rx_bytes_phy", "tx_packets_phy", "tx_bytes_phy", "rx_out_of_buffer",
};

/* RCU read side; takes the frame */
int fcx_receive(struct fcx *f, struct sk_buff *skb)
{
	struct net_device *nd = rcu_dereference(f->ndev);
	struct fcx_netdev *p;

	if (!nd || !netif_running(nd)) {
		kfree_skb(skb);
		return -ENETDOWN;
	}
	p = netdev_priv(nd);
	if (skb_queue_len(&p->rxq) >= FCX_RX_BACKLOG) {
		atomic64_inc(&p->count[FCX_OUT_OF_BUFFER]);
		kfree_skb(skb);
		return -ENOBUFS;
	}
	skb_queue_tail(&p->rxq, skb);
	napi_schedule(&p->napi);
	return 0;
}

static int fcx_poll(struct napi_struct *napi, int budget)
{
	struct fcx_netdev *p = container_of(napi, struct fcx_netdev, napi);
	struct net_device *nd = napi->dev;
	struct sk_buff *skb;
	int done = 0;

	rcu_read_lock();
	while (done < budget && (skb = skb_dequeue(&p->rxq))) {
		unsigned int len = skb->len;

		done++;
		fcx_count(p, FCX_RX_PACKETS, len);
		skb_reset_mac_header(skb);
		if (fcx_hairpin(p, skb))
			continue;
		skb->protocol = eth_type_trans(skb, nd);
		dev_sw_netstats_rx_add(nd, len);
		netif_receive_skb(skb);
	}
	rcu_read_unlock();
	if (done < budget && napi_complete_done(napi, done) && !skb_queue_empty(&p->rxq))
		napi_schedule(napi);
	return done;
}

static netdev_tx_t fcx_xmit(struct sk_buff *skb, struct net_device *nd)
{
	struct fcx_netdev *p = netdev_priv(nd);
	unsigned int len = skb->len;

	skb_tx_timestamp(skb);
	skb_orphan(skb);
	skb_scrub_packet(skb, true);
	FCX_CB(skb)->hops = 0;
	fcx_count(p, FCX_TX_PACKETS, len);
	rcu_read_lock();
	if (fcx_segment_send(p->fcx, skb))
		dev_core_stats_tx_dropped_inc(nd);
	else
		dev_sw_netstats_tx_add(nd, 1, len);
	rcu_read_unlock();
	return NETDEV_TX_OK;
}

void fcx_carrier(struct fcx *f)
{
	struct net_device *nd = f ? rtnl_dereference(f->ndev) : NULL;

	if (!nd)
		return;
	if (netif_running(nd) && f->port->link)
		netif_carrier_on(nd);
	else
		netif_carrier_off(nd);
}

static int fcx_open(struct net_device *nd)
{
	struct fcx_netdev *p = netdev_priv(nd);

	napi_enable(&p->napi);
	fcx_carrier(p->fcx);
	mod_delayed_work(system_wq, &p->fcx->port->pulse, 0);
	return 0;
}

static int fcx_stop(struct net_device *nd)
{
	struct fcx_netdev *p = netdev_priv(nd);

	napi_disable(&p->napi);
	synchronize_net();	/* no sender is left that saw the device running */
	skb_queue_purge(&p->rxq);
	netif_carrier_off(nd);
	return 0;
}

static int fcx_set_features(struct net_device *nd, netdev_features_t features)
{
	struct fcx_netdev *p = netdev_priv(nd);

	if ((nd->features & ~features & NETIF_F_HW_TC) && p->fcx->n_rules) {
		netdev_err(nd, "Active offloaded tc filters, can't turn hw_tc_offload off\n");
		return -EINVAL;
	}
	return 0;
}

const struct net_device_ops fcx_netdev_ops = {
	.ndo_open		= fcx_open,
	.ndo_stop		= fcx_stop,
	.ndo_start_xmit		= fcx_xmit,
	.ndo_set_features	= fcx_set_features,
	.ndo_setup_tc		= fcx_setup_tc,
	.ndo_set_mac_address	= eth_mac_addr,
	.ndo_validate_addr	= eth_validate_addr,
};

/* ------------------------------------------------------------ ethtool */

static void fcx_get_drvinfo(struct net_device *nd, struct ethtool_drvinfo *info)
{
	struct fcx_netdev *p = netdev_priv(nd);

	strscpy(info->driver, FCX_DRV, sizeof(info->driver));
	strscpy(info->fw_version, FCX_FIRMWARE, sizeof(info->fw_version));
	strscpy(info->bus_info, pci_name(p->fcx->pdev), sizeof(info->bus_info));
}

static int fcx_get_ksettings(struct net_device *nd, struct ethtool_link_ksettings *k)
{
	ethtool_link_ksettings_zero_link_mode(k, supported);
	k->base.speed = netif_carrier_ok(nd) ? SPEED_200000 : SPEED_UNKNOWN;
	k->base.duplex = DUPLEX_FULL;
	k->base.port = PORT_DA;
	k->base.autoneg = AUTONEG_ENABLE;
	return 0;
}

static int fcx_sset_count(struct net_device *nd, int sset)
{
	return sset == ETH_SS_STATS ? FCX_COUNTERS : -EOPNOTSUPP;
}

static void fcx_get_strings(struct net_device *nd, u32 sset, u8 *buf)
{
	if (sset == ETH_SS_STATS)
		memcpy(buf, fcx_strings, sizeof(fcx_strings));
}

static void fcx_get_stats(struct net_device *nd, struct ethtool_stats *s, u64 *v)
{
	struct fcx_netdev *p = netdev_priv(nd);
	int i;

	for (i = 0; i < FCX_COUNTERS; i++)
		v[i] = atomic64_read(&p->count[i]);
}

static const struct ethtool_ops fcx_ethtool_ops = {
	.get_drvinfo		= fcx_get_drvinfo,
	.get_link		= ethtool_op_get_link,
	.get_link_ksettings	= fcx_get_ksettings,
	.get_sset_count		= fcx_sset_count,
	.get_strings		= fcx_get_strings,
	.get_ethtool_stats	= fcx_get_stats,
};

/* ---------------------------------------------------------- DCB trust */

static bool fcx_is_dscp(const struct dcb_app *app)
{
	return app->selector == IEEE_8021QAZ_APP_SEL_DSCP && app->protocol < 64;
}

static int fcx_ieee_setapp(struct net_device *nd, struct dcb_app *app)
{
	struct fcx_netdev *p = netdev_priv(nd);
	int err = fcx_is_dscp(app) ? dcb_ieee_setapp(nd, app) : -EINVAL;

	if (!err)
		p->fcx->dscp_apps++;
	return err;
}

static int fcx_ieee_delapp(struct net_device *nd, struct dcb_app *app)
{
	struct fcx_netdev *p = netdev_priv(nd);
	int err = fcx_is_dscp(app) ? dcb_ieee_delapp(nd, app) : -EINVAL;

	if (!err)
		p->fcx->dscp_apps--;
	return err;
}

static u8 fcx_getdcbx(struct net_device *nd)
{
	return DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
}

static const struct dcbnl_rtnl_ops fcx_dcbnl_ops = {
	.ieee_setapp	= fcx_ieee_setapp,
	.ieee_delapp	= fcx_ieee_delapp,
	.getdcbx	= fcx_getdcbx,
};

/* ------------------------------------------------------- coming, going */

static void fcx_netdev_setup(struct fcx *f, struct net_device *nd)
{
	struct fcx_netdev *p = netdev_priv(nd);

	p->fcx = f;
	skb_queue_head_init(&p->rxq);
	netif_napi_add(nd, &p->napi, fcx_poll);
	eth_hw_addr_set(nd, f->mac);
	nd->netdev_ops = &fcx_netdev_ops;
	nd->ethtool_ops = &fcx_ethtool_ops;
	nd->dcbnl_ops = &fcx_dcbnl_ops;
	nd->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	nd->hw_features = NETIF_F_HW_TC | NETIF_F_HW_CSUM | NETIF_F_SG | NETIF_F_RXCSUM;
	nd->features = nd->hw_features | NETIF_F_HIGHDMA;
	if (!hw_tc_offload)
		nd->features &= ~NETIF_F_HW_TC;
	nd->priv_flags |= IFF_LIVE_ADDR_CHANGE;
	nd->max_mtu = FCX_MAX_MTU;
	SET_NETDEV_DEV(nd, &f->pdev->dev);
	SET_NETDEV_DEVLINK_PORT(nd, &f->dl_port);
	dev_net_set(nd, devlink_net(priv_to_devlink(f)));
	netif_carrier_off(nd);
}

int fcx_netdev_up(struct fcx *f)
{
	struct devlink_port_attrs attrs = {
		.flavour = DEVLINK_PORT_FLAVOUR_PHYSICAL,
		.phys.port_number = f->port->number,
	};
	struct net_device *nd = alloc_etherdev(sizeof(struct fcx_netdev));
	int err;

	if (!nd)
		return -ENOMEM;
	fcx_driver_values(f);
	f->dscp_apps = 0;
	memset(&f->dl_port, 0, sizeof(f->dl_port));
	devlink_port_attrs_set(&f->dl_port, &attrs);
	err = devl_port_register(priv_to_devlink(f), &f->dl_port, f->port->number);
	if (err)
		goto free;
	fcx_netdev_setup(f, nd);
	rtnl_lock();
	err = register_netdevice(nd);
	if (!err) {
		f->incarnation++;
		rcu_assign_pointer(f->ndev, nd);
	}
	rtnl_unlock();
	if (!err)
		return 0;
	devl_port_unregister(&f->dl_port);
free:
	free_netdev(nd);
	return err;
}

void fcx_netdev_down(struct fcx *f)
{
	struct net_device *nd;

	rtnl_lock();
	nd = rtnl_dereference(f->ndev);
	if (nd) {
		unregister_netdevice(nd);	/* closes it and takes its rules away */
		RCU_INIT_POINTER(f->ndev, NULL);
		f->incarnation++;
	}
	rtnl_unlock();
	if (!nd)
		return;		/* a reload that failed half-way left none */
	synchronize_net();
	devl_port_unregister(&f->dl_port);
	free_netdev(nd);
}
