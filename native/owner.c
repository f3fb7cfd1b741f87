/* SPDX-License-Identifier: Apache-2.0 */
/* One owner a device: a lock on a file that nobody else can place, replace or take. */
#include "marker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char DIRECTORY_HINT[] =
	"use a directory under /run that root owns and that no one else can write, without symbolic links on the way";

static bool is_trusted_owner(uid_t owner)
{
	return owner == 0 || owner == geteuid();
}

/* Someone who can rename entries of a directory on the way can swap what lies below: sticky stops that. */
static bool is_safe_on_the_way(const struct stat *info)
{
	return is_trusted_owner(info->st_uid) &&
	       ((info->st_mode & (S_IWGRP | S_IWOTH)) == 0 || (info->st_mode & S_ISVTX) != 0);
}

static bool is_safe_at_the_end(const struct stat *info)
{
	return is_trusted_owner(info->st_uid) && (info->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Opens one component below `parent`, which is closed in any case; the last one is created where it is missing. */
static int descend(int parent, const char *name, bool last, const char *path)
{
	struct stat info;
	int child;

	if (last && mkdirat(parent, name, 0700) != 0 && errno != EEXIST) {
		report(SEVERITY_ERROR, errno, DIRECTORY_HINT, "cannot create the state directory %s", path);
		(void)close(parent);
		return -1;
	}
	child = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (child < 0) {
		report(SEVERITY_ERROR, errno, DIRECTORY_HINT, "cannot open '%s' of the state directory %s", name, path);
		(void)close(parent);
		return -1;
	}
	(void)close(parent);
	if (fstat(child, &info) != 0) {
		report(SEVERITY_ERROR, errno, NULL, "cannot look at '%s' of the state directory %s", name, path);
		(void)close(child);
		return -1;
	}
	if (!(last ? is_safe_at_the_end(&info) : is_safe_on_the_way(&info))) {
		report(SEVERITY_ERROR, 0, DIRECTORY_HINT,
		       "'%s' of the state directory %s is not safe: owner %u, mode %04o", name, path,
		       (unsigned int)info.st_uid, (unsigned int)(info.st_mode & 07777));
		(void)close(child);
		return -1;
	}
	return child;
}

/* Walks down without following a symbolic link anywhere; returns the directory, or -1 with a message. */
static int open_state_dir(const char *path)
{
	char component[NAME_MAX + 1];
	const char *rest = path + strspn(path, "/");
	int directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (directory < 0) {
		report(SEVERITY_ERROR, errno, NULL, "cannot open /");
		return -1;
	}
	if (*rest == '\0') {
		report(SEVERITY_ERROR, 0, DIRECTORY_HINT, "the state directory cannot be /");
		(void)close(directory);
		return -1;
	}
	while (directory >= 0 && *rest != '\0') {
		const size_t length = strcspn(rest, "/");
		const char *next = rest + length + strspn(rest + length, "/");

		if (length >= sizeof(component)) {
			report(SEVERITY_ERROR, ENAMETOOLONG, DIRECTORY_HINT, "cannot use the state directory %s", path);
			(void)close(directory);
			return -1;
		}
		memcpy(component, rest, length);
		component[length] = '\0';
		if (strcmp(component, ".") == 0 || strcmp(component, "..") == 0) {
			report(SEVERITY_ERROR, 0, DIRECTORY_HINT, "'%s' is not allowed in the state directory %s",
			       component, path);
			(void)close(directory);
			return -1;
		}
		directory = descend(directory, component, *next == '\0', path);
		rest = next;
	}
	return directory;
}

static void report_other_owner(int file)
{
	char text[16] = {0};
	const ssize_t size = pread(file, text, sizeof(text) - 1, 0);

	/* The holder writes its number right after it got the lock: for a moment there may be none. */
	text[strspn(text, "0123456789")] = '\0';
	report(SEVERITY_ERROR, 0, "stop that one first; two markers on one device would tag the same packets twice",
	       "another marker holds this device%s%s", size > 0 && text[0] != '\0' ? ", process " : "", text);
}

static int lock_file(int file, const char *name)
{
	struct stat info;
	char text[16];
	int size;

	if (fstat(file, &info) != 0) {
		report(SEVERITY_ERROR, errno, NULL, "cannot look at the lock file %s", name);
		return EXIT_STATE_DIR;
	}
	if (!S_ISREG(info.st_mode) || !is_trusted_owner(info.st_uid) || info.st_nlink != 1) {
		report(SEVERITY_ERROR, 0, "look who put it there, then remove it",
		       "the lock file %s is not a plain file of root with one name", name);
		return EXIT_STATE_DIR;
	}
	if (flock(file, LOCK_EX | LOCK_NB) != 0) {
		if (errno == EWOULDBLOCK) {
			report_other_owner(file);
			return EXIT_OWNED;
		}
		report(SEVERITY_ERROR, errno, NULL, "cannot lock %s", name);
		return EXIT_STATE_DIR;
	}
	size = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)size, 0) != size) {
		report(SEVERITY_ERROR, errno, NULL, "cannot write to the lock file %s", name);
		return EXIT_STATE_DIR;
	}
	return EXIT_DONE;
}

int take_ownership(const char *state_dir, const char *device, int *lock)
{
	/* Room for the longest device name that the arguments let through. */
	char name[64 + sizeof(".lock")];
	const int directory = open_state_dir(state_dir);
	int file;
	int result;

	if (directory < 0)
		return EXIT_STATE_DIR;
	(void)snprintf(name, sizeof(name), "%s.lock", device);
	file = openat(directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0) {
		report(SEVERITY_ERROR, errno, DIRECTORY_HINT, "cannot open the lock file %s in %s", name, state_dir);
		(void)close(directory);
		return EXIT_STATE_DIR;
	}
	(void)close(directory);
	result = lock_file(file, name);
	if (result != EXIT_DONE) {
		(void)close(file);
		return result;
	}
	*lock = file;
	return EXIT_DONE;
}
