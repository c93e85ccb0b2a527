/* Counts what a process does to the files of one folder and, at the n-th call, kills or stops it or lets the call fail.

   Loaded with LD_PRELOAD, and armed by shim_arm() or by the environment (SHIM_FOLDER, SHIM_AT, SHIM_ACTION, SHIM_ERROR,
   SHIM_RECORD). Counted are calls that change something: opening to write, writing, truncating, making names and
   removing them, and writing through to the disk. Each is also written down, with its data, for whoever wants to know
   what a power loss would leave. Files of other folders are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum action { NOTHING, KILL_BEFORE, KILL_AFTER, KILL_HALF, FAIL_ONCE, FAIL_ON, STOP };
enum { FILES = 4096, LONGEST = 4096 };

static char folder[LONGEST];
static size_t folder_length;
static long at, count;
static int action, failure, record = -1;
static char *names[FILES]; /* of the folder's files that are open */

static void shim_forget(void) {
    for (int fd = 0; fd < FILES; fd++) { free(names[fd]); names[fd] = NULL; }
}

void shim_arm(const char *where, long n, int what, int error, int record_to) {
    shim_forget();
    folder_length = strlen(where) < LONGEST ? strlen(where) : 0;
    memcpy(folder, where, folder_length);
    at = n; action = what; failure = error; record = record_to; count = 0;
}

long shim_count(void) { return count; }

__attribute__((constructor)) static void from_environment(void) {
    const char *where = getenv("SHIM_FOLDER"), *file = getenv("SHIM_RECORD");
    if (where == NULL) return;
    int to = file == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    const char *n = getenv("SHIM_AT"), *what = getenv("SHIM_ACTION"), *error = getenv("SHIM_ERROR");
    shim_arm(where, n ? atol(n) : 0, what ? atoi(what) : 0, error ? atoi(error) : 0, to);
}

static int ours(const char *path) {
    return folder_length && path != NULL && strncmp(path, folder, folder_length) == 0 &&
           (path[folder_length] == '/' || path[folder_length] == '\0');
}

static const char *name_of(int fd) { return fd >= 0 && fd < FILES ? names[fd] : NULL; }

static void end(int sign) { syscall(SYS_kill, (pid_t)syscall(SYS_getpid), sign); }

/* Before a counted call. 0: go on, 1: it fails, 2: only half of it happens. */
static int before(void) {
    long number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (number == at) {
        if (action == KILL_BEFORE) end(SIGKILL);
        if (action == STOP) end(SIGSTOP);
        if (action == KILL_HALF) return 2;
        if (action == FAIL_ONCE || action == FAIL_ON) { errno = failure; return 1; }
    }
    if (action == FAIL_ON && number > at) { errno = failure; return 1; }
    return 0;
}

/* Behind it: "op fd flags offset bytes path<TAB>second path", and the bytes. */
static void done(int well, const char *op, int fd, int flags, off_t offset, const void *data, size_t bytes,
                 const char *path, const char *second) {
    int kept = errno;
    if (!well) { op = "nothing"; bytes = 0; }
    if (record >= 0) {
        char line[2 * LONGEST + 100];
        int length = snprintf(line, sizeof line, "%s %d %d %lld %zu %s\t%s\n", op, fd, flags, (long long)offset, bytes,
                              path ? path : "", second ? second : "");
        if (syscall(SYS_write, record, line, (size_t)length) < 0) abort();
        for (size_t written = 0; written < bytes;) {
            long more = syscall(SYS_write, record, (const char *)data + written, bytes - written);
            if (more <= 0) abort();
            written += (size_t)more;
        }
    }
    if (count == at && (action == KILL_AFTER || action == KILL_HALF)) end(SIGKILL);
    errno = kept;
}

#define REAL(type, name, ...) type (*real)(__VA_ARGS__) = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* ---- opening and closing ---- */

static int opened(int (*real)(int, const char *, int, ...), int from, const char *path, int flags, mode_t mode) {
    if (!ours(path)) return real(from, path, flags, mode);
    int writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
    if (writes && before() == 1) return -1;
    int fd = real(from, path, flags, mode);
    if (fd >= 0 && fd < FILES) { free(names[fd]); names[fd] = strdup(path); }
    if (writes) done(fd >= 0, "open", fd, flags, 0, NULL, 0, path, NULL);
    return fd;
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) {
    MODE REAL(int, "openat", int, const char *, int, ...);
    return opened(real, AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE REAL(int, "openat64", int, const char *, int, ...);
    return opened(real, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int openat(int from, const char *path, int flags, ...) {
    MODE REAL(int, "openat", int, const char *, int, ...);
    return opened(real, from, path, flags, mode);
}
int openat64(int from, const char *path, int flags, ...) {
    MODE REAL(int, "openat64", int, const char *, int, ...);
    return opened(real, from, path, flags | O_LARGEFILE, mode);
}
int close(int fd) {
    REAL(int, "close", int);
    if (name_of(fd)) { free(names[fd]); names[fd] = NULL; }
    return real(fd);
}

/* ---- contents ---- */

static off_t place(int fd) {
    struct stat status;
    if ((fcntl(fd, F_GETFL) & O_APPEND) && fstat(fd, &status) == 0) return status.st_size;
    return lseek(fd, 0, SEEK_CUR);
}

static ssize_t put(int fd, const void *data, size_t bytes, off_t offset, int here) {
    REAL(ssize_t, "write", int, const void *, size_t);
    ssize_t (*real_at)(int, const void *, size_t, off_t) =
        (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    if (!name_of(fd)) return here ? real(fd, data, bytes) : real_at(fd, data, bytes, offset);
    int how = before();
    if (how == 1 && !(action == FAIL_ON && count == at && bytes > 1)) return -1;
    if (how != 0) bytes /= 2; /* a disk that fills up takes a part first */
    off_t from = here ? place(fd) : offset;
    ssize_t written = here ? real(fd, data, bytes) : real_at(fd, data, bytes, offset);
    done(written >= 0, "write", fd, 0, from, data, (size_t)written, name_of(fd), NULL);
    return written;
}

ssize_t write(int fd, const void *data, size_t bytes) { return put(fd, data, bytes, 0, 1); }
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) { return put(fd, data, bytes, offset, 0); }
ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset) { return put(fd, data, bytes, offset, 0); }

ssize_t writev(int fd, const struct iovec *parts, int number) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return name_of(fd) && number > 0 ? put(fd, parts[0].iov_base, parts[0].iov_len, 0, 1) : real(fd, parts, number);
}

/* What copies inside the kernel is not available in the folder; callers then read and write. */
ssize_t sendfile(int to, int from, off_t *offset, size_t bytes) {
    REAL(ssize_t, "sendfile", int, int, off_t *, size_t);
    if (name_of(to)) { errno = ENOTSOCK; return -1; }
    return real(to, from, offset, bytes);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t bytes) { return sendfile(to, from, (off_t *)offset, bytes); }

static int cut(const char *name, int fd, off_t length) {
    REAL(int, name, int, off_t);
    if (!name_of(fd)) return real(fd, length);
    if (before() == 1) return -1;
    int result = real(fd, length);
    done(result == 0, "truncate", fd, 0, length, NULL, 0, name_of(fd), NULL);
    return result;
}
int ftruncate(int fd, off_t length) { return cut("ftruncate", fd, length); }
int ftruncate64(int fd, off64_t length) { return cut("ftruncate64", fd, length); }

static int through(const char *name, int fd) {
    REAL(int, name, int);
    if (!name_of(fd)) return real(fd);
    if (before() == 1) return -1;
    int result = real(fd);
    done(result == 0, "fsync", fd, 0, 0, NULL, 0, name_of(fd), NULL);
    return result;
}
int fsync(int fd) { return through("fsync", fd); }
int fdatasync(int fd) { return through("fdatasync", fd); }

/* ---- names ---- */

static int moved(const char *op, const char *path, const char *second, int from, int to) {
    REAL(int, op, int, const char *, int, const char *);
    if (!ours(path) && !ours(second)) return real(from, path, to, second);
    if (before() == 1) return -1;
    int result = real(from, path, to, second);
    done(result == 0, "rename", -1, 0, 0, NULL, 0, path, second);
    return result;
}
int rename(const char *path, const char *second) { return moved("renameat", path, second, AT_FDCWD, AT_FDCWD); }
int renameat(int from, const char *path, int to, const char *second) { return moved("renameat", path, second, from, to); }

int linkat(int from, const char *path, int to, const char *second, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    if (!ours(second)) return real(from, path, to, second, flags);
    if (before() == 1) return -1;
    int result = real(from, path, to, second, flags);
    done(result == 0, "link", -1, 0, 0, NULL, 0, path, second);
    return result;
}
int link(const char *path, const char *second) { return linkat(AT_FDCWD, path, AT_FDCWD, second, 0); }

int unlinkat(int from, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    if (!ours(path)) return real(from, path, flags);
    if (before() == 1) return -1;
    int result = real(from, path, flags);
    done(result == 0, flags & AT_REMOVEDIR ? "rmdir" : "unlink", -1, 0, 0, NULL, 0, path, NULL);
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int from, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    if (!ours(path)) return real(from, path, mode);
    if (before() == 1) return -1;
    int result = real(from, path, mode);
    done(result == 0, "mkdir", -1, 0, 0, NULL, 0, path, NULL);
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
