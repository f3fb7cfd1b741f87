// SPDX-License-Identifier: GPL-2.0
/* Flower rules in "hardware": parsing, hairpins, and the walk of a frame. */
#include <linux/rtnetlink.h>
#include <linux/seq_file.h>
#include <net/flow_offload.h>
#include <net/pkt_cls.h>

#include "fakecx7.h"

#define FCX_MAX_MANGLE	8
#define FCX_MAX_HOPS	64	/* a loop between functions of one host ends here */
#define FCX_NO_PRIO	8	/* mlx5's hairpin priority of a rule without VLAN */

/* queues between two functions, shared by all rules from one to the other */
struct fcx_hairpin {
	struct list_head list;
	struct fcx *peer;
	u32 refcnt, channels, packets;
};

struct fcx_rule {
	struct list_head list;
	struct rcu_head rcu;
	unsigned long cookie;
	u32 prio;
	__be16 proto, proto_mask;
	struct ethhdr key, mask;	/* the addresses only */
	int n_mangle;
	struct { u32 off, mask, val; } mangle[FCX_MAX_MANGLE];
	struct fcx *out;
	u32 out_incarnation;
	struct fcx_hairpin *hairpin;
	atomic64_t pkts, bytes, drops;
	u64 seen_pkts, seen_bytes, seen_drops, lastused;
};

static LIST_HEAD(fcx_block_cbs);

/* ---------------------------------------------------------- data path */

static bool fcx_addr_ok(const u8 *addr, const u8 *key, const u8 *mask)
{
	int i;

	for (i = 0; i < ETH_ALEN; i++)
		if ((addr[i] ^ key[i]) & mask[i])
			return false;
	return true;
}

static struct fcx_rule *fcx_match(struct fcx *f, const struct ethhdr *eth)
{
	struct fcx_rule *r;

	list_for_each_entry_rcu(r, &f->rules, list)
		if (!((eth->h_proto ^ r->proto) & r->proto_mask) &&
		    fcx_addr_ok(eth->h_source, r->key.h_source, r->mask.h_source) &&
		    fcx_addr_ok(eth->h_dest, r->key.h_dest, r->mask.h_dest))
			return r;
	return NULL;
}

static bool fcx_overflows(struct fcx *f)
{
	u32 every = READ_ONCE(f->fault.overflow);

	return every && !(atomic_inc_return(&f->hairpinned) % every);
}

static void fcx_mangle(const struct fcx_rule *r, struct sk_buff *skb)
{
	int i;

	for (i = 0; i < r->n_mangle; i++) {
		u32 w;

		memcpy(&w, skb->data + r->mangle[i].off, 4);
		w = (w & r->mangle[i].mask) ^ r->mangle[i].val;
		memcpy(skb->data + r->mangle[i].off, &w, 4);
	}
}

/* true: a rule took the frame, the host never sees it. RCU read side, BH off. */
bool fcx_hairpin(struct fcx_netdev *p, struct sk_buff *skb)
{
	struct fcx_rule *r = fcx_match(p->fcx, eth_hdr(skb));
	unsigned int len = skb->len;
	struct net_device *out;

	if (!r)
		return false;
	/* the flow counter stands before the queue: it counts what is lost, too */
	atomic64_inc(&r->pkts);
	atomic64_add(len, &r->bytes);
	out = rcu_dereference(r->out->ndev);
	if (p->fcx->fault.blackhole || !out || !netif_running(out) ||
	    r->out->incarnation != r->out_incarnation ||	/* a reload left the rule dangling */
	    FCX_CB(skb)->hops++ >= FCX_MAX_HOPS ||
	    len < ETH_HLEN + 2 || skb_ensure_writable(skb, ETH_HLEN + 2))
		goto drop;
	if (fcx_overflows(p->fcx)) {
		atomic64_inc(&p->count[FCX_OUT_OF_BUFFER]);
		goto drop;
	}
	fcx_mangle(r, skb);
	skb->protocol = ((struct ethhdr *)skb->data)->h_proto;
	fcx_count(netdev_priv(out), FCX_TX_PACKETS, len);
	if (fcx_segment_send(r->out, skb))
		atomic64_inc(&r->drops);
	return true;
drop:
	kfree_skb(skb);
	atomic64_inc(&r->drops);
	return true;
}

/* ----------------------------------------------------------- hairpins */

static struct fcx_hairpin *fcx_hairpin_get(struct fcx *f, struct fcx *peer)
{
	struct fcx_hairpin *h;

	list_for_each_entry(h, &f->hairpins, list)
		if (h->peer == peer) {
			h->refcnt++;
			return h;
		}
	h = kzalloc(sizeof(*h), GFP_KERNEL);
	if (!h)
		return NULL;
	h->peer = peer;
	h->refcnt = 1;
	h->channels = f->num_queues;
	h->packets = f->queue_size;
	list_add_tail(&h->list, &f->hairpins);
	return h;
}

static void fcx_hairpin_put(struct fcx_hairpin *h)
{
	if (!h || --h->refcnt)
		return;
	list_del(&h->list);
	kfree(h);
}

void fcx_hairpin_table(struct fcx *f, struct seq_file *s)
{
	struct fcx_hairpin *h;

	mutex_lock(&f->lock);
	list_for_each_entry(h, &f->hairpins, list)
		seq_printf(s, "Hairpin peer_vhca_id %u prio %u refcnt %u num_channels %u num_packets %u\n",
			   h->peer->index, FCX_NO_PRIO, h->refcnt, h->channels, h->packets);
	mutex_unlock(&f->lock);
}

unsigned int fcx_hairpin_count(struct fcx *f)
{
	unsigned int n;

	mutex_lock(&f->lock);
	n = list_count_nodes(&f->hairpins);
	mutex_unlock(&f->lock);
	return n;
}

/* -------------------------------------------------------------- rules */

static int fcx_refuse(struct netlink_ext_ack *extack, const char *why)
{
	NL_SET_ERR_MSG_FMT(extack, FCX_DRV ": %s", why);
	return -EOPNOTSUPP;
}

static int fcx_parse_match(struct flow_rule *rule, struct netlink_ext_ack *extack, struct fcx_rule *r)
{
	if (rule->match.dissector->used_keys &
	    ~(BIT_ULL(FLOW_DISSECTOR_KEY_CONTROL) | BIT_ULL(FLOW_DISSECTOR_KEY_BASIC) |
	      BIT_ULL(FLOW_DISSECTOR_KEY_ETH_ADDRS)))
		return fcx_refuse(extack, "Unsupported key");
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_BASIC)) {
		struct flow_match_basic m;

		flow_rule_match_basic(rule, &m);
		if (m.mask->ip_proto)
			return fcx_refuse(extack, "Unsupported key: ip_proto");
		r->proto = m.key->n_proto;
		r->proto_mask = m.mask->n_proto;
	}
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_ETH_ADDRS)) {
		struct flow_match_eth_addrs m;

		flow_rule_match_eth_addrs(rule, &m);
		ether_addr_copy(r->key.h_dest, m.key->dst);
		ether_addr_copy(r->key.h_source, m.key->src);
		ether_addr_copy(r->mask.h_dest, m.mask->dst);
		ether_addr_copy(r->mask.h_source, m.mask->src);
	}
	return 0;
}

static int fcx_parse_redirect(struct fcx *f, const struct flow_action_entry *a,
			      struct netlink_ext_ack *extack, struct fcx_rule *r)
{
	struct fcx_netdev *peer;

	if (a->dev->netdev_ops != &fcx_netdev_ops)
		return fcx_refuse(extack, "devices are not on same switch HW, can't offload forwarding");
	peer = netdev_priv(a->dev);
	if (peer->fcx->guid != f->guid)
		return fcx_refuse(extack, "devices are not on same switch HW, can't offload forwarding");
	if (f->dscp_apps)
		return fcx_refuse(extack, "only PCP trust state supported for hairpin");
	r->out = peer->fcx;
	r->out_incarnation = r->out->incarnation;
	return 0;
}

static int fcx_parse(struct fcx *f, struct flow_cls_offload *c, struct fcx_rule *r)
{
	struct flow_rule *rule = flow_cls_offload_flow_rule(c);
	struct netlink_ext_ack *extack = c->common.extack;
	const struct flow_action_entry *a;
	int i, err = fcx_parse_match(rule, extack, r);

	if (err)
		return err;
	flow_action_for_each(i, a, &rule->action) {
		switch (a->id) {
		case FLOW_ACTION_MANGLE:
			if (a->mangle.htype != FLOW_ACT_MANGLE_HDR_TYPE_ETH ||
			    a->mangle.offset > 12 || r->n_mangle == FCX_MAX_MANGLE)
				return fcx_refuse(extack, "Pedit action not supported");
			r->mangle[r->n_mangle].off = a->mangle.offset;
			r->mangle[r->n_mangle].mask = a->mangle.mask;
			r->mangle[r->n_mangle++].val = a->mangle.val;
			break;
		case FLOW_ACTION_REDIRECT:
			err = fcx_parse_redirect(f, a, extack, r);
			if (err)
				return err;
			break;
		default:
			return fcx_refuse(extack, "The offload action is not supported");
		}
	}
	return r->out ? 0 : fcx_refuse(extack, "Rule must have at least one forward/drop action");
}

static struct fcx_rule *fcx_find(struct fcx *f, unsigned long cookie)
{
	struct fcx_rule *r;

	list_for_each_entry(r, &f->rules, list)
		if (r->cookie == cookie)
			return r;
	return NULL;
}

static void fcx_rule_del(struct fcx *f, struct fcx_rule *r)
{
	if (!r)
		return;
	list_del_rcu(&r->list);
	f->n_rules--;
	fcx_hairpin_put(r->hairpin);
	kfree_rcu(r, rcu);
}

static int fcx_rule_add(struct fcx *f, struct flow_cls_offload *c)
{
	struct fcx_rule *r, *pos;
	int err;

	if (f->fault.rule_errno) {
		NL_SET_ERR_MSG_FMT(c->common.extack, FCX_DRV ": injected fault %u", f->fault.rule_errno);
		return -(int)f->fault.rule_errno;
	}
	r = kzalloc(sizeof(*r), GFP_KERNEL);
	if (!r)
		return -ENOMEM;
	err = fcx_parse(f, c, r);
	if (!err) {
		r->hairpin = fcx_hairpin_get(f, r->out);
		err = r->hairpin ? 0 : -ENOMEM;
	}
	if (err) {
		kfree(r);
		return err;
	}
	r->cookie = c->cookie;
	r->prio = c->common.prio;
	r->lastused = jiffies;
	fcx_rule_del(f, fcx_find(f, c->cookie));
	list_for_each_entry(pos, &f->rules, list)
		if (pos->prio > r->prio)
			break;
	list_add_tail_rcu(&r->list, &pos->list);
	f->n_rules++;
	return 0;
}

static int fcx_rule_stats(struct fcx_rule *r, struct flow_cls_offload *c)
{
	u64 pkts, bytes, drops;

	if (!r)
		return -ENOENT;
	pkts = atomic64_read(&r->pkts);
	bytes = atomic64_read(&r->bytes);
	drops = atomic64_read(&r->drops);
	if (pkts != r->seen_pkts)
		r->lastused = jiffies;
	flow_stats_update(&c->stats, bytes - r->seen_bytes, pkts - r->seen_pkts,
			  drops - r->seen_drops, r->lastused, FLOW_ACTION_HW_STATS_DELAYED);
	r->seen_pkts = pkts;
	r->seen_bytes = bytes;
	r->seen_drops = drops;
	return 0;
}

static int fcx_flower(struct fcx *f, struct flow_cls_offload *c)
{
	int err = 0;

	mutex_lock(&f->lock);
	switch (c->command) {
	case FLOW_CLS_REPLACE:
		err = fcx_rule_add(f, c);
		break;
	case FLOW_CLS_DESTROY:
		fcx_rule_del(f, fcx_find(f, c->cookie));
		break;
	case FLOW_CLS_STATS:
		err = fcx_rule_stats(fcx_find(f, c->cookie), c);
		break;
	default:
		err = -EOPNOTSUPP;
	}
	mutex_unlock(&f->lock);
	return err;
}

static int fcx_block_cb(enum tc_setup_type type, void *type_data, void *cb_priv)
{
	struct net_device *nd = cb_priv;
	struct fcx_netdev *p = netdev_priv(nd);
	struct flow_cls_offload *c = type_data;

	if (type != TC_SETUP_CLSFLOWER)
		return -EOPNOTSUPP;
	/* removal and statistics pass whatever the feature flag says, as in mlx5 */
	if (c->command == FLOW_CLS_REPLACE && !tc_cls_can_offload_and_chain0(nd, &c->common))
		return -EOPNOTSUPP;
	return fcx_flower(p->fcx, c);
}

int fcx_setup_tc(struct net_device *nd, enum tc_setup_type type, void *type_data)
{
	if (type != TC_SETUP_BLOCK)
		return -EOPNOTSUPP;
	return flow_block_cb_setup_simple(type_data, &fcx_block_cbs, fcx_block_cb, nd, nd, true);
}
