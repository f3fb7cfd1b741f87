/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fakecx7 - a software model of the ConnectX-7 functions of one host.
 *
 * A host has two physical ports (cages). Every PCI domain contributes one
 * function to each port, so the functions of a port share one Ethernet segment:
 * the cable and, for frames between twins, the port itself.
 *
 *   pci.c      the software PCI buses that make the functions appear
 *   netdev.c   net device, ethtool, DCB trust
 *   segment.c  the port: cable, link pulses, delivery by MAC
 *   tc.c       flower rules and hairpins
 *   devlink.c  driver parameters, reload, eswitch mode
 *   faults.c   debugfs: mlx5's hairpin table, wiring, faults on demand
 *   rdma.c     one system_image_guid for all functions of the host
 */
#ifndef FAKECX7_H
#define FAKECX7_H

#include <linux/atomic.h>
#include <linux/etherdevice.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <net/devlink.h>

#define FCX_DRV		"mlx5_core"	/* the name that user space is to see */
#define FCX_DOMAINS	4		/* PCI domains, hence planes, at most */
#define FCX_PORTS	2		/* functions of a PCI device, hence ports */
#define FCX_FUNCTIONS	(FCX_DOMAINS * FCX_PORTS)
#define FCX_MAX_QUEUE	8192		/* the driver's largest hairpin_queue_size */

#define FCX_ERR(extack, msg)	NL_SET_ERR_MSG(extack, FCX_DRV ": " msg)

enum fcx_counter {
	FCX_RX_PACKETS, FCX_RX_BYTES, FCX_TX_PACKETS, FCX_TX_BYTES,
	FCX_OUT_OF_BUFFER,	/* the only trace that an overflown hairpin leaves */
	FCX_COUNTERS
};

/* what a devlink reload does instead of working; names in faults.c */
enum fcx_reload_fault {
	FCX_RELOAD_OK, FCX_RELOAD_BUSY, FCX_RELOAD_SF, FCX_RELOAD_LAG,
	FCX_RELOAD_FAIL, FCX_RELOAD_HANG, FCX_RELOAD_HANG_HARD,
};

struct fcx_faults {
	u32 rule_errno;		/* new rules are refused with this errno */
	u32 overflow;		/* every Nth frame of a hairpin finds the queue full */
	bool blackhole;		/* rules count and forward nothing */
	enum fcx_reload_fault reload;
};

/* one PCI function: the devlink instance, alive from probe to remove */
struct fcx {
	struct pci_dev *pdev;
	struct fcx_port *port;
	unsigned int index;		/* domain index * FCX_PORTS + port number */
	u8 mac[ETH_ALEN];
	u64 guid;
	struct devlink_port dl_port;
	struct net_device __rcu *ndev;	/* NULL while reloaded; written under rtnl */
	u32 incarnation;		/* one more whenever ndev comes or goes */
	u32 num_queues, queue_size;	/* in effect, as of the last (re)load */
	u8 steering;
	struct mutex lock;		/* rules, hairpins */
	struct list_head rules, hairpins;
	unsigned int n_rules;
	atomic_t hairpinned;
	u8 dscp_apps;			/* any entry means DSCP trust, as in mlx5 */
	struct fcx_faults fault;
	struct dentry *dir, *mlx5_dir;
};

/* one physical port with the functions that share it */
struct fcx_port {
	unsigned int number;
	struct fcx __rcu *fn[FCX_DOMAINS];
	struct net_device __rcu *wire;	/* written under rtnl */
	bool cable;			/* false: pulled out at this end */
	bool link;			/* the far end was heard lately */
	bool pulsing;			/* the far end was told that this port is up */
	unsigned long heard;		/* jiffies; 0: not, or it said goodbye */
	struct delayed_work pulse;
};

/* private part of a function's net_device */
struct fcx_netdev {
	struct fcx *fcx;
	struct napi_struct napi;
	struct sk_buff_head rxq;
	atomic64_t count[FCX_COUNTERS];
};

struct fcx_skb_cb {
	u32 hops;			/* hairpins passed since the frame came in */
};
#define FCX_CB(skb)	((struct fcx_skb_cb *)(skb)->cb)

static inline void fcx_count(struct fcx_netdev *p, enum fcx_counter packets, unsigned int len)
{
	atomic64_inc(&p->count[packets]);
	atomic64_add(len, &p->count[packets + 1]);
}

/* netdev.c */
extern const struct net_device_ops fcx_netdev_ops;
int fcx_netdev_up(struct fcx *f);	/* devlink lock held */
void fcx_netdev_down(struct fcx *f);	/* devlink lock held */
void fcx_carrier(struct fcx *f);	/* rtnl held */
int fcx_receive(struct fcx *f, struct sk_buff *skb);

/* segment.c */
extern struct fcx_port fcx_ports[FCX_PORTS];
void fcx_segment_init(void);
void fcx_segment_exit(void);
int fcx_segment_send(struct fcx *from, struct sk_buff *skb);
int fcx_wire(struct fcx_port *port, struct net_device *lower);	/* rtnl held */
void fcx_cable_set(struct fcx_port *port, bool in);

/* tc.c */
int fcx_setup_tc(struct net_device *nd, enum tc_setup_type type, void *type_data);
bool fcx_hairpin(struct fcx_netdev *p, struct sk_buff *skb);
void fcx_hairpin_table(struct fcx *f, struct seq_file *s);
unsigned int fcx_hairpin_count(struct fcx *f);

/* devlink.c */
struct fcx *fcx_devlink_alloc(struct pci_dev *pdev);
int fcx_devlink_register(struct fcx *f);
void fcx_devlink_unregister(struct fcx *f);
void fcx_driver_values(struct fcx *f);
const char *fcx_steering_name(const struct fcx *f);

/* faults.c */
void fcx_debugfs_init(void);
void fcx_debugfs_exit(void);
void fcx_debugfs_add(struct fcx *f);
void fcx_debugfs_remove(struct fcx *f);

/* rdma.c */
int fcx_rdma_init(void);
void fcx_rdma_exit(void);

#endif
