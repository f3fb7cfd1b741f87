/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel asks for CAP_NET_RAW when a rule is created, and for nothing when it is held or removed. */
#include "marker.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS _LINUX_CAPABILITY_U32S_3

static int read_capabilities(struct __user_cap_data_struct data[WORDS])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};

	if (syscall(SYS_capget, &header, data) == 0)
		return EXIT_DONE;
	report(SEVERITY_ERROR, errno, NULL, "cannot read the capabilities of this process");
	return EXIT_SYSTEM;
}

static bool is_effective(const struct __user_cap_data_struct data[WORDS], int capability)
{
	return (data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
}

static int write_capabilities(struct __user_cap_data_struct data[WORDS])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};

	if (syscall(SYS_capset, &header, data) == 0)
		return EXIT_DONE;
	report(SEVERITY_ERROR, errno, NULL, "cannot give up capabilities");
	return EXIT_SYSTEM;
}

int forbid_new_privileges(void)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		return EXIT_DONE;
	report(SEVERITY_ERROR, errno, NULL, "cannot set no_new_privs");
	return EXIT_SYSTEM;
}

int require_net_raw(void)
{
	struct __user_cap_data_struct data[WORDS] = {{0}};
	const int result = read_capabilities(data);

	if (result != EXIT_DONE)
		return result;
	if (is_effective(data, CAP_NET_RAW))
		return EXIT_DONE;
	report(SEVERITY_ERROR, 0, "run it as root, or from its unit", "CAP_NET_RAW is missing, which RDMA-TX rules need");
	return EXIT_NO_PERMISSION;
}

/*
 * Empties the bounding set where CAP_SETPCAP allows it. Where it does not, a service manager has already narrowed
 * the set, and with no_new_privs and no permitted capability the rest of it cannot be reached.
 */
static int empty_bounding_set(void)
{
	unsigned long capability = 0;

	while (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0)
		capability++;
	/* EINVAL says that the kernel knows no capability of this number: all before it are dropped. */
	if (errno == EINVAL && capability > CAP_NET_RAW)
		return EXIT_DONE;
	report(SEVERITY_ERROR, errno, NULL, "cannot drop capability %lu from the bounding set", capability);
	return EXIT_SYSTEM;
}

int keep_only_net_raw(void)
{
	struct __user_cap_data_struct data[WORDS] = {{0}};
	int result = read_capabilities(data);

	if (result == EXIT_DONE && is_effective(data, CAP_SETPCAP))
		result = empty_bounding_set();
	if (result != EXIT_DONE)
		return result;
	for (size_t word = 0; word < WORDS; word++)
		data[word] = (struct __user_cap_data_struct){0};
	data[CAP_TO_INDEX(CAP_NET_RAW)].effective = CAP_TO_MASK(CAP_NET_RAW);
	data[CAP_TO_INDEX(CAP_NET_RAW)].permitted = CAP_TO_MASK(CAP_NET_RAW);
	return write_capabilities(data);
}

int drop_all_privileges(void)
{
	struct __user_cap_data_struct data[WORDS] = {{0}};

	return write_capabilities(data);
}
