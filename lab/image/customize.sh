#!/bin/sh
# Run inside the guest's fresh root: users, and no unit that the lab does not need (under software emulation
# each costs seconds). What rendered units order themselves against stays.
set -eu

rm -f /etc/hostname /etc/machine-id /etc/ssh/ssh_host_*
passwd -d root >/dev/null
useradd -m -s /bin/bash nvidia
useradd -m -s /bin/bash maint
echo 'maint:lab' | chpasswd
printf 'nvidia ALL=(ALL) NOPASSWD: ALL\nmaint ALL=(ALL) ALL\n' > /etc/sudoers.d/lab
chmod 0440 /etc/sudoers.d/lab

for unit in \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
	fstrim.timer logrotate.timer motd-news.timer \
	NetworkManager-wait-online.service systemd-networkd-wait-online.service systemd-timesyncd.service \
	console-getty.service getty@tty1.service serial-getty@ttyS0.service \
	ldconfig.service systemd-update-done.service systemd-hwdb-update.service \
	systemd-journal-catalog-update.service systemd-firstboot.service systemd-pstore.service \
	systemd-binfmt.service proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount \
	modprobe@configfs.service modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service \
	modprobe@dm_mod.service modprobe@loop.service systemd-rfkill.service systemd-rfkill.socket \
	systemd-tpm2-setup.service systemd-tpm2-setup-early.service systemd-vconsole-setup.service \
	dev-hugepages.mount dev-mqueue.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount \
	systemd-random-seed.service systemd-udev-load-credentials.service systemd-hibernate-clear.service \
	systemd-logind.service systemd-hostnamed.service systemd-networkd-persistent-storage.service tmp.mount \
	cloud-init-hotplugd.socket run-lock.mount systemd-journal-flush.service \
	rdma-ndd.service iwpmd.service ModemManager.service wpa_supplicant.service; do
	ln -sf /dev/null "/etc/systemd/system/$unit"
done
systemctl enable ssh.service NetworkManager.service >/dev/null 2>&1
