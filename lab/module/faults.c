// SPDX-License-Identifier: GPL-2.0
/*
 * debugfs. Under mlx5/<pci>/nic/fs/tc what mlx5 itself offers there; under fakecx7/
 * the wiring and the faults, none of which a real card has:
 *
 *	fakecx7/wire			"f0 eth1": net device eth1 of the writer's netns is port f0's cable
 *	fakecx7/<port>/cable		0 pulls the cable out, 1 puts it back
 *	fakecx7/<pci>/...		struct fcx_faults, system_image_guid, state
 */
#include <linux/debugfs.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>
#include <linux/seq_file.h>
#include <net/net_namespace.h>

#include "fakecx7.h"

static struct dentry *fcx_root, *fcx_mlx5_root;

static const char * const fcx_reload_names[] = {
	[FCX_RELOAD_OK] = "none", [FCX_RELOAD_BUSY] = "busy", [FCX_RELOAD_SF] = "sf",
	[FCX_RELOAD_LAG] = "lag", [FCX_RELOAD_FAIL] = "fail", [FCX_RELOAD_HANG] = "hang",
	[FCX_RELOAD_HANG_HARD] = "hang-hard",
};

/* ---------------------------------------------- what mlx5 has there too */

static int hairpin_table_dump_show(struct seq_file *s, void *unused)
{
	fcx_hairpin_table(s->private, s);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(hairpin_table_dump);

static int fcx_num_active_get(void *data, u64 *val)
{
	*val = fcx_hairpin_count(data);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(fcx_num_active_fops, fcx_num_active_get, NULL, "%llu\n");

/* ------------------------------------------------------------- faults */

static ssize_t fcx_word_from_user(char *buf, size_t size, const char __user *from, size_t n)
{
	if (n >= size)
		return -EINVAL;
	if (copy_from_user(buf, from, n))
		return -EFAULT;
	buf[n] = 0;
	return 0;
}

static ssize_t fcx_reload_write(struct file *file, const char __user *from, size_t n, loff_t *pos)
{
	struct fcx *f = file->private_data;
	char word[16];
	int err = fcx_word_from_user(word, sizeof(word), from, n);

	if (err)
		return err;
	err = sysfs_match_string(fcx_reload_names, word);
	if (err < 0)
		return err;
	WRITE_ONCE(f->fault.reload, err);
	return n;
}

static ssize_t fcx_reload_read(struct file *file, char __user *to, size_t n, loff_t *pos)
{
	struct fcx *f = file->private_data;
	const char *word = fcx_reload_names[f->fault.reload];

	return simple_read_from_buffer(to, n, pos, word, strlen(word));
}

static const struct file_operations fcx_reload_fops = {
	.owner = THIS_MODULE, .open = simple_open, .read = fcx_reload_read, .write = fcx_reload_write,
};

static int fcx_cable_get(void *data, u64 *val)
{
	*val = ((struct fcx_port *)data)->cable;
	return 0;
}

static int fcx_cable_write(void *data, u64 val)
{
	fcx_cable_set(data, val);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(fcx_cable_fops, fcx_cable_get, fcx_cable_write, "%llu\n");

static int fcx_state_show(struct seq_file *s, void *unused)
{
	struct fcx *f = s->private;

	seq_printf(s, "hairpin_num_queues %u\nhairpin_queue_size %u\nflow_steering_mode %s\n",
		   f->num_queues, f->queue_size, fcx_steering_name(f));
	seq_printf(s, "rules %u\nlink %d\ndscp_trust %d\n", f->n_rules, f->port->link, f->dscp_apps > 0);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(fcx_state);

/* ------------------------------------------------------------- wiring */

static ssize_t fcx_wire_write(struct file *file, const char __user *from, size_t n, loff_t *pos)
{
	char buf[32], ifname[IFNAMSIZ];
	struct net_device *lower;
	unsigned int port;
	int err = fcx_word_from_user(buf, sizeof(buf), from, n);

	if (err)
		return err;
	if (sscanf(buf, "f%u %15s", &port, ifname) != 2 || port >= FCX_PORTS)
		return -EINVAL;
	rtnl_lock();
	lower = __dev_get_by_name(current->nsproxy->net_ns, ifname);
	err = lower ? fcx_wire(&fcx_ports[port], lower) : -ENODEV;
	rtnl_unlock();
	return err ?: n;
}

static const struct file_operations fcx_wire_fops = {
	.owner = THIS_MODULE, .open = simple_open, .write = fcx_wire_write,
};

/* ------------------------------------------------------- coming, going */

void fcx_debugfs_add(struct fcx *f)
{
	struct dentry *tc;

	f->dir = debugfs_create_dir(pci_name(f->pdev), fcx_root);
	debugfs_create_u32("rule_errno", 0600, f->dir, &f->fault.rule_errno);
	debugfs_create_u32("overflow", 0600, f->dir, &f->fault.overflow);
	debugfs_create_bool("blackhole", 0600, f->dir, &f->fault.blackhole);
	debugfs_create_file("reload", 0600, f->dir, f, &fcx_reload_fops);
	debugfs_create_x64("system_image_guid", 0600, f->dir, &f->guid);
	debugfs_create_file("state", 0400, f->dir, f, &fcx_state_fops);

	f->mlx5_dir = debugfs_create_dir(pci_name(f->pdev), fcx_mlx5_root);
	tc = debugfs_create_dir("tc", debugfs_create_dir("fs", debugfs_create_dir("nic", f->mlx5_dir)));
	debugfs_create_file("hairpin_num_active", 0444, tc, f, &fcx_num_active_fops);
	debugfs_create_file("hairpin_table_dump", 0444, tc, f, &hairpin_table_dump_fops);
}

void fcx_debugfs_remove(struct fcx *f)
{
	debugfs_remove_recursive(f->mlx5_dir);
	debugfs_remove_recursive(f->dir);
}

void fcx_debugfs_init(void)
{
	int i;

	fcx_root = debugfs_create_dir(KBUILD_MODNAME, NULL);
	fcx_mlx5_root = debugfs_create_dir("mlx5", NULL);
	debugfs_create_file("wire", 0200, fcx_root, NULL, &fcx_wire_fops);
	for (i = 0; i < FCX_PORTS; i++) {
		char name[4];

		snprintf(name, sizeof(name), "f%d", i);
		debugfs_create_file("cable", 0600, debugfs_create_dir(name, fcx_root),
				    &fcx_ports[i], &fcx_cable_fops);
	}
}

void fcx_debugfs_exit(void)
{
	debugfs_remove_recursive(fcx_mlx5_root);
	debugfs_remove_recursive(fcx_root);
}
