// SPDX-License-Identifier: GPL-2.0
/*
 * The software PCI root buses: bus 01 of every domain carries one two-function
 * device, so that user space finds 0000:01:00.0, 0000:01:00.1, 0002:01:00.0, ...
 */
#include <linux/module.h>
#include <linux/rtnetlink.h>

#include "fakecx7.h"

#define FCX_CFG_SIZE	256
#define FCX_VENDOR	0x15b3		/* Mellanox */
#define FCX_DEVICE	0x1021		/* ConnectX-7 */
#define FCX_SUBSYSTEM	0x0067

static ushort domains[FCX_DOMAINS] = { 0, 2 };
static int n_domains = 2;
module_param_array(domains, ushort, &n_domains, 0444);
MODULE_PARM_DESC(domains, "PCI domains, one plane each");

static char *macs[FCX_FUNCTIONS];
static int n_macs;
module_param_array(macs, charp, &n_macs, 0444);
MODULE_PARM_DESC(macs, "MACs: both ports of the first domain, both of the second, ...");

struct fcx_bus {
	struct pci_sysdata sd;		/* first: bus->sysdata points to it */
	struct resource busn;
	struct pci_bus *bus;
	u8 cfg[FCX_PORTS][FCX_CFG_SIZE];
};
static struct fcx_bus fcx_buses[FCX_DOMAINS];

static struct fcx_bus *fcx_bus_of(struct pci_bus *bus)
{
	return container_of(bus->sysdata, struct fcx_bus, sd);
}

/* ----------------------------------------------------------- functions */

static int fcx_mac(u8 *mac, unsigned int index)
{
	static const u8 base[ETH_ALEN] = { 0x4c, 0xbb, 0x47, 0x00, 0x00, 0x00 };

	if (index < n_macs)
		return mac_pton(macs[index], mac) && is_valid_ether_addr(mac) ? 0 : -EINVAL;
	ether_addr_copy(mac, base);
	mac[5] = index;
	return 0;
}

/* one for the host: the first function's MAC, widened as Mellanox does */
static int fcx_host_guid(u64 *guid)
{
	u8 mac[ETH_ALEN];
	int err = fcx_mac(mac, 0);

	*guid = (u64)mac[0] << 56 | (u64)mac[1] << 48 | (u64)mac[2] << 40 | 3ULL << 32 |
		(u64)mac[3] << 16 | mac[4] << 8 | mac[5];
	return err;
}

static int fcx_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	unsigned int domain = fcx_bus_of(pdev->bus) - fcx_buses;
	unsigned int port = PCI_FUNC(pdev->devfn);
	struct fcx *f = fcx_devlink_alloc(pdev);
	int err;

	if (!f)
		return -ENOMEM;
	f->index = domain * FCX_PORTS + port;
	f->port = &fcx_ports[port];
	err = fcx_mac(f->mac, f->index);
	if (!err)
		err = fcx_host_guid(&f->guid);
	if (err) {
		devlink_free(priv_to_devlink(f));
		return err;
	}
	pci_set_drvdata(pdev, f);
	err = fcx_devlink_register(f);
	if (err)
		return err;
	rcu_assign_pointer(f->port->fn[domain], f);
	fcx_debugfs_add(f);
	return 0;
}

static void fcx_remove(struct pci_dev *pdev)
{
	struct fcx *f = pci_get_drvdata(pdev);

	fcx_debugfs_remove(f);
	rtnl_lock();
	RCU_INIT_POINTER(f->port->fn[f->index / FCX_PORTS], NULL);
	rtnl_unlock();
	synchronize_net();
	fcx_devlink_unregister(f);
}

static const struct pci_device_id fcx_ids[] = { { PCI_DEVICE(FCX_VENDOR, FCX_DEVICE) }, { } };

static struct pci_driver fcx_driver = {
	.name = FCX_DRV, .id_table = fcx_ids, .probe = fcx_probe, .remove = fcx_remove,
};

/* --------------------------------------------------------------- buses */

static u8 *fcx_cfg(struct pci_bus *bus, unsigned int devfn, int where, int size)
{
	return devfn < FCX_PORTS && where + size <= FCX_CFG_SIZE ? fcx_bus_of(bus)->cfg[devfn] + where : NULL;
}

static int fcx_cfg_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *val)
{
	u8 *c = fcx_cfg(bus, devfn, where, size);

	*val = 0;
	if (!c) {
		*val = ~0;
		return PCIBIOS_DEVICE_NOT_FOUND;
	}
	memcpy(val, c, size);
	return PCIBIOS_SUCCESSFUL;
}

static int fcx_cfg_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 val)
{
	u8 *c = fcx_cfg(bus, devfn, where, size);

	if (c && (where == PCI_COMMAND || where == PCI_INTERRUPT_LINE))
		memcpy(c, &val, min(size, 2));
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops fcx_pci_ops = { .read = fcx_cfg_read, .write = fcx_cfg_write };

static void fcx_cfg_init(u8 *c)
{
	*(__le16 *)(c + PCI_VENDOR_ID) = cpu_to_le16(FCX_VENDOR);
	*(__le16 *)(c + PCI_DEVICE_ID) = cpu_to_le16(FCX_DEVICE);
	*(__le16 *)(c + PCI_CLASS_DEVICE) = cpu_to_le16(PCI_CLASS_NETWORK_ETHERNET);
	*(__le16 *)(c + PCI_SUBSYSTEM_VENDOR_ID) = cpu_to_le16(FCX_VENDOR);
	*(__le16 *)(c + PCI_SUBSYSTEM_ID) = cpu_to_le16(FCX_SUBSYSTEM);
	c[PCI_HEADER_TYPE] = 0x80;	/* multi-function */
}

static int fcx_bus_add(struct fcx_bus *b, u16 domain)
{
	LIST_HEAD(res);
	int i;

	b->sd.domain = domain;
	b->sd.node = NUMA_NO_NODE;
	b->busn = (struct resource){ .name = KBUILD_MODNAME, .start = 1, .end = 1, .flags = IORESOURCE_BUS };
	for (i = 0; i < FCX_PORTS; i++)
		fcx_cfg_init(b->cfg[i]);
	pci_add_resource(&res, &b->busn);
	pci_lock_rescan_remove();
	b->bus = pci_create_root_bus(NULL, 1, &fcx_pci_ops, &b->sd, &res);
	if (b->bus) {
		pci_scan_child_bus(b->bus);
		pci_bus_add_devices(b->bus);
	} else {
		pci_free_resource_list(&res);
	}
	pci_unlock_rescan_remove();
	return b->bus ? 0 : -EEXIST;
}

static void fcx_buses_remove(void)
{
	int i;

	pci_lock_rescan_remove();
	for (i = 0; i < n_domains; i++) {
		if (!fcx_buses[i].bus)
			continue;
		pci_stop_root_bus(fcx_buses[i].bus);
		pci_remove_root_bus(fcx_buses[i].bus);
	}
	pci_unlock_rescan_remove();
}

/* -------------------------------------------------------------- module */

static void fcx_teardown(void)
{
	fcx_buses_remove();
	pci_unregister_driver(&fcx_driver);
	fcx_segment_exit();
	fcx_debugfs_exit();
}

static int __init fcx_init(void)
{
	int i, err;

	fcx_debugfs_init();
	fcx_segment_init();
	err = pci_register_driver(&fcx_driver);
	if (err) {
		fcx_segment_exit();
		fcx_debugfs_exit();
		return err;
	}
	for (i = 0; !err && i < n_domains; i++)
		err = fcx_bus_add(&fcx_buses[i], domains[i]);
	if (!err)
		err = fcx_rdma_init();
	if (err)
		fcx_teardown();
	return err;
}

static void __exit fcx_exit(void)
{
	fcx_rdma_exit();
	fcx_teardown();
}

module_init(fcx_init);
module_exit(fcx_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("software model of ConnectX-7 functions with tc hairpin offload");
