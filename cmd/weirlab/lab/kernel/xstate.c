/* Debian 12's user-mode Linux 6.1 writes the registers of its processes with
 * ptrace(PTRACE_SETREGSET, NT_X86_XSTATE) from a buffer of fixed size, 2,696 bytes.
 * Where the processor has more state (AMX, APX; CPUID leaf 0xD), the host's kernel
 * refuses an incomplete set with EFAULT, and the first exec is a panic. This library,
 * preloaded, completes the set: it reads the whole state, lays the caller's bytes over
 * its beginning, and writes all of it back. Linux 6.13 sizes the buffer as the host does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PEEKTEXT = 1, PEEKDATA, PEEKUSER, GETREGSET = 0x4204, SETREGSET = 0x4205, XSTATE = 0x202 };

long ptrace(int request, ...)
{
	static __thread char whole[1 << 16] __attribute__((aligned(64)));
	va_list args;
	va_start(args, request);
	long pid = va_arg(args, long);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);

	if (request == SETREGSET && (long)addr == XSTATE) {
		struct iovec *given = data, all = { whole, sizeof whole };
		if (!syscall(SYS_ptrace, GETREGSET, pid, addr, &all) && all.iov_len > given->iov_len) {
			memcpy(whole, given->iov_base, given->iov_len);
			return syscall(SYS_ptrace, SETREGSET, pid, addr, &all);
		}
	}
	if (request == PEEKTEXT || request == PEEKDATA || request == PEEKUSER) {
		long word; /* the system call stores the word, the C function returns it */
		if (syscall(SYS_ptrace, (long)request, pid, addr, &word) < 0)
			return -1;
		errno = 0;
		return word;
	}
	return syscall(SYS_ptrace, (long)request, pid, addr, data);
}
