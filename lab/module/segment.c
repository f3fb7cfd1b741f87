// SPDX-License-Identifier: GPL-2.0
/*
 * A physical port: one Ethernet segment for the functions of every PCI domain.
 *
 * The cable is a lower net device, whose frames reach the other host unchanged.
 * Link is what pulse frames say: a port whose functions are all down, or whose
 * cable is pulled, says so once; one whose host is off goes silent. Either way
 * the far end loses carrier.
 */
#include <linux/random.h>
#include <linux/reboot.h>
#include <linux/rtnetlink.h>
#include <linux/workqueue.h>

#include "fakecx7.h"

#define FCX_PULSE_TYPE		0x9000	/* Ethernet loopback test; nobody's data */
#define FCX_PULSE_EVERY		msecs_to_jiffies(500)

static uint link_timeout_ms = 10000;
module_param(link_timeout_ms, uint, 0644);
MODULE_PARM_DESC(link_timeout_ms, "silence on a cable after which its link is down");

static const u8 fcx_pulse_mac[ETH_ALEN] = { 0x4e, 0xbb, 0x47, 0xff, 0xff, 0xff };

struct fcx_port fcx_ports[FCX_PORTS];

static bool fcx_running(struct fcx *f)
{
	struct net_device *nd = f ? rcu_dereference_rtnl(f->ndev) : NULL;

	return nd && netif_running(nd);
}

static int fcx_to_wire(struct fcx_port *port, struct sk_buff *skb)
{
	struct net_device *wire = rcu_dereference(port->wire);

	if (!wire || !port->cable) {
		kfree_skb(skb);
		return -ENETDOWN;
	}
	skb->dev = wire;
	return dev_queue_xmit(skb);
}

static int fcx_deliver_copy(struct fcx *f, struct sk_buff *skb)
{
	struct sk_buff *copy = skb_clone(skb, GFP_ATOMIC);

	return copy ? fcx_receive(f, copy) : -ENOMEM;
}

/*
 * Hand a frame to the functions of a port other than @from: broadcast and
 * multicast to all, in no promised order, unicast to the owner of the address.
 * Promiscuous functions get a copy of everything. True when an owner was found,
 * who has the frame now.
 */
static bool fcx_deliver(struct fcx_port *port, struct fcx *from, struct sk_buff *skb)
{
	const u8 *dest = ((struct ethhdr *)skb->data)->h_dest;
	bool multi = is_multicast_ether_addr(dest), backwards = get_random_u8() & 1;
	struct fcx *owner = NULL;
	int i;

	for (i = 0; i < FCX_DOMAINS; i++) {
		struct fcx *f = rcu_dereference(port->fn[backwards ? FCX_DOMAINS - 1 - i : i]);
		struct net_device *nd = f ? rcu_dereference(f->ndev) : NULL;

		if (!nd || f == from)
			continue;
		if (!multi && !owner && ether_addr_equal(dest, nd->dev_addr))
			owner = f;
		else if (multi || nd->flags & IFF_PROMISC)
			fcx_deliver_copy(f, skb);
	}
	if (owner)
		fcx_receive(owner, skb);
	return owner;
}

/* RCU read side, bottom halves off; skb->data at the Ethernet header */
int fcx_segment_send(struct fcx *from, struct sk_buff *skb)
{
	if (fcx_deliver(from->port, from, skb))
		return 0;
	return fcx_to_wire(from->port, skb);
}

static bool fcx_is_pulse(const struct sk_buff *skb)
{
	const struct ethhdr *eth = (struct ethhdr *)skb->data;

	return eth->h_proto == htons(FCX_PULSE_TYPE) && ether_addr_equal(eth->h_dest, fcx_pulse_mac);
}

static rx_handler_result_t fcx_from_wire(struct sk_buff **pskb)
{
	struct sk_buff *skb = skb_share_check(*pskb, GFP_ATOMIC);
	struct fcx_port *port;

	if (!skb)
		return RX_HANDLER_CONSUMED;
	port = rcu_dereference(skb->dev->rx_handler_data);
	skb_push(skb, ETH_HLEN);
	if (!port->cable || !pskb_may_pull(skb, ETH_HLEN)) {
		kfree_skb(skb);
		return RX_HANDLER_CONSUMED;
	}
	if (fcx_is_pulse(skb)) {
		bool alive = pskb_may_pull(skb, ETH_ZLEN) && skb->data[ETH_HLEN];

		WRITE_ONCE(port->heard, alive ? jiffies : 0);
		if (port->link != alive)
			mod_delayed_work(system_wq, &port->pulse, 0);
		consume_skb(skb);
		return RX_HANDLER_CONSUMED;
	}
	skb_scrub_packet(skb, true);
	FCX_CB(skb)->hops = 0;
	if (!fcx_deliver(port, NULL, skb))
		consume_skb(skb);	/* nobody's address: the card's MAC filter drops it */
	return RX_HANDLER_CONSUMED;
}

/* RCU read side, bottom halves off */
static void fcx_send_pulse(struct fcx_port *port, bool alive)
{
	struct net_device *wire = rcu_dereference_bh(port->wire);
	struct sk_buff *skb;
	struct ethhdr *eth;

	if (!wire || !netif_running(wire))
		return;
	skb = netdev_alloc_skb(wire, ETH_ZLEN);
	if (!skb)
		return;
	eth = skb_put_zero(skb, ETH_ZLEN);
	ether_addr_copy(eth->h_dest, fcx_pulse_mac);
	ether_addr_copy(eth->h_source, wire->dev_addr);
	eth->h_proto = htons(FCX_PULSE_TYPE);
	skb->data[ETH_HLEN] = alive;
	skb_reset_mac_header(skb);
	skb->protocol = eth->h_proto;
	fcx_to_wire(port, skb);
}

static bool fcx_link_now(struct fcx_port *port)
{
	struct net_device *wire = rcu_dereference_bh(port->wire);
	unsigned long heard = READ_ONCE(port->heard);

	return wire && port->cable && netif_carrier_ok(wire) && heard &&
	       time_before(jiffies, heard + msecs_to_jiffies(link_timeout_ms));
}

static void fcx_pulse(struct work_struct *work)
{
	struct fcx_port *port = container_of(to_delayed_work(work), struct fcx_port, pulse);
	bool up = false, link;
	int i;

	rcu_read_lock_bh();
	for (i = 0; i < FCX_DOMAINS; i++)
		up |= fcx_running(rcu_dereference_bh(port->fn[i]));
	if (up || port->pulsing)
		fcx_send_pulse(port, up);
	port->pulsing = up;
	link = fcx_link_now(port);
	rcu_read_unlock_bh();

	if (link != port->link) {
		rtnl_lock();
		port->link = link;
		for (i = 0; i < FCX_DOMAINS; i++)
			fcx_carrier(rtnl_dereference(port->fn[i]));
		rtnl_unlock();
	}
	schedule_delayed_work(&port->pulse, FCX_PULSE_EVERY);
}

static void fcx_say_goodbye(struct fcx_port *port)
{
	rcu_read_lock_bh();
	fcx_send_pulse(port, false);
	rcu_read_unlock_bh();
}

void fcx_cable_set(struct fcx_port *port, bool in)
{
	if (!in)
		fcx_say_goodbye(port);
	WRITE_ONCE(port->cable, in);
	WRITE_ONCE(port->heard, 0);	/* a link has to be heard anew */
	mod_delayed_work(system_wq, &port->pulse, 0);
}

static void fcx_unwire(struct fcx_port *port)
{
	struct net_device *wire = rtnl_dereference(port->wire);

	if (!wire)
		return;
	netdev_rx_handler_unregister(wire);
	RCU_INIT_POINTER(port->wire, NULL);
	dev_put(wire);
}

/* make @lower the cable of @port */
int fcx_wire(struct fcx_port *port, struct net_device *lower)
{
	int err;

	fcx_unwire(port);
	err = netdev_rx_handler_register(lower, fcx_from_wire, port);
	if (err)
		return err;
	dev_hold(lower);
	dev_set_promiscuity(lower, 1);
	rcu_assign_pointer(port->wire, lower);
	fcx_cable_set(port, true);
	return 0;
}

static int fcx_reboot(struct notifier_block *nb, unsigned long event, void *unused)
{
	int i;

	for (i = 0; i < FCX_PORTS; i++)
		fcx_say_goodbye(&fcx_ports[i]);
	return NOTIFY_DONE;
}

static struct notifier_block fcx_reboot_nb = { .notifier_call = fcx_reboot };

void fcx_segment_init(void)
{
	int i;

	register_reboot_notifier(&fcx_reboot_nb);

	for (i = 0; i < FCX_PORTS; i++) {
		fcx_ports[i].number = i;
		fcx_ports[i].cable = true;
		INIT_DELAYED_WORK(&fcx_ports[i].pulse, fcx_pulse);
		schedule_delayed_work(&fcx_ports[i].pulse, FCX_PULSE_EVERY);
	}
}

void fcx_segment_exit(void)
{
	int i;

	unregister_reboot_notifier(&fcx_reboot_nb);

	for (i = 0; i < FCX_PORTS; i++) {
		rtnl_lock();
		fcx_unwire(&fcx_ports[i]);
		rtnl_unlock();
		cancel_delayed_work_sync(&fcx_ports[i].pulse);
	}
}
