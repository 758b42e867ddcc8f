/* fsync(2) and fdatasync(2) fail while the file that FSYNC_FAILS names is there (F37). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(void)
{
	const char *path = getenv("FSYNC_FAILS");

	if (!path || access(path, F_OK))
		return 0;
	errno = EIO;
	return 1;
}

int fsync(int descriptor)
{
	return fails() ? -1 : (int)syscall(SYS_fsync, descriptor);
}

int fdatasync(int descriptor)
{
	return fails() ? -1 : (int)syscall(SYS_fdatasync, descriptor);
}
