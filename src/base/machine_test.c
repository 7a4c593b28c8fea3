#define _GNU_SOURCE
#include "base/machine.h"

#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine_internal.h"
#include "base/test.h"

// A machine of files under a temporary folder.
struct fake {
    char root[64];
};

static void fake_init(struct fake *m)
{
    strcpy(m->root, "/tmp/quire-machine-XXXXXX");
    assert_non_null(mkdtemp(m->root));
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    return remove(path);
}

static void fake_fini(struct fake *m)
{
    nftw(m->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void put(struct fake *m, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", m->root, path);
    for (char *p = full + strlen(m->root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

#define V2_MOUNT                                                                                             \
    "22 1 0:21 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 "          \
    "rw,nsdelegate\n"
#define GIB ((uint64_t)1 << 30)

QR_TEST(machine_without_cgroups_is_what_the_kernel_says)
{
    struct fake m;
    fake_init(&m);
    put(&m, "/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n");
    assert_int_equal(machine_memory_at(m.root), 16 * GIB);
    assert_int_equal(machine_cpus_at(m.root, 6), 6);
    assert_int_equal(machine_cpus_at(m.root, 0), 1);
    fake_fini(&m);
}

QR_TEST(machine_v2_takes_the_tightest_level)
{
    struct fake m;
    fake_init(&m);
    put(&m, "/proc/meminfo", "MemTotal: 16777216 kB\n");
    put(&m, "/proc/self/mountinfo", V2_MOUNT);
    put(&m, "/proc/self/cgroup", "0::/pod/box\n");
    put(&m, "/sys/fs/cgroup/pod/box/memory.max", "max\n");
    put(&m, "/sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
    assert_int_equal(machine_memory_at(m.root), 16 * GIB);
    assert_int_equal(machine_cpus_at(m.root, 64), 64);
    put(&m, "/sys/fs/cgroup/pod/memory.max", "4294967296\n");
    put(&m, "/sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
    assert_int_equal(machine_memory_at(m.root), 4 * GIB);
    assert_int_equal(machine_cpus_at(m.root, 64), 3); // 2.5 processors, rounded up
    assert_int_equal(machine_cpus_at(m.root, 2), 2);
    put(&m, "/sys/fs/cgroup/pod/box/memory.high", "3221225472\n");
    put(&m, "/sys/fs/cgroup/pod/box/cpu.max", "5000 100000\n");
    assert_int_equal(machine_memory_at(m.root), 3 * GIB);
    assert_int_equal(machine_cpus_at(m.root, 64), 1);
    fake_fini(&m);
}

QR_TEST(machine_v1_follows_the_mounted_part)
{
    struct fake m;
    fake_init(&m);
    put(&m, "/proc/meminfo", "MemTotal: 16777216 kB\n");
    put(&m, "/proc/self/mountinfo",
        "33 32 0:28 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "34 32 0:29 /docker/ab /sys/fs/cgroup/cpu\\040x ro shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "35 32 0:30 / /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n");
    put(&m, "/proc/self/cgroup", "5:memory:/docker/ab/in\n4:cpuset:/\n3:cpu,cpuacct:/docker/ab\n0::/\n");
    put(&m, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(&m, "/sys/fs/cgroup/memory/in/memory.limit_in_bytes", "9223372036854771712\n");
    put(&m, "/sys/fs/cgroup/cpu x/cpu.cfs_quota_us", "-1\n");
    put(&m, "/sys/fs/cgroup/cpu x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(machine_memory_at(m.root), 16 * GIB);
    assert_int_equal(machine_cpus_at(m.root, 8), 8);
    put(&m, "/sys/fs/cgroup/memory/in/memory.limit_in_bytes", "2147483648\n");
    put(&m, "/sys/fs/cgroup/cpu x/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(machine_memory_at(m.root), 2 * GIB);
    assert_int_equal(machine_cpus_at(m.root, 8), 4);
    put(&m, "/sys/fs/cgroup/memory/memory.stat", "cache 0\nhierarchical_memory_limit 1073741824\n");
    assert_int_equal(machine_memory_at(m.root), GIB);
    fake_fini(&m);
}

QR_TEST(machine_ignores_a_group_that_is_not_mounted)
{
    struct fake m;
    fake_init(&m);
    put(&m, "/proc/meminfo", "MemTotal: 1048576 kB\n");
    put(&m, "/proc/self/mountinfo",
        "30 23 0:26 /other /sys/fs/cgroup rw - cgroup2 cgroup2 rw\nshort line\n\n");
    put(&m, "/proc/self/cgroup", "garbage\n0::/../elsewhere\n");
    put(&m, "/sys/fs/cgroup/memory.max", "536870912\n");
    assert_int_equal(machine_memory_at(m.root), GIB / 2);
    fake_fini(&m);
}

QR_TEST(machine_names_the_processor)
{
    struct fake m;
    char name[64];
    fake_init(&m);
    machine_cpu_model_at(m.root, name, sizeof name);
    assert_string_equal(name, "unknown");
    put(&m, "/proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9R14\nmodel name\t: second\n");
    machine_cpu_model_at(m.root, name, sizeof name);
    assert_string_equal(name, "AMD EPYC 9R14");
    put(&m, "/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
    machine_cpu_model_at(m.root, name, sizeof name);
    assert_string_equal(name, "ARM implementer 0x41 part 0xd40");
    fake_fini(&m);
}

QR_TEST(machine_here_is_plausible)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_in_range(qr_machine_cpus(), 1, CPU_COUNT(&set));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        assert_int_equal(qr_machine_may_use(cpu), !!CPU_ISSET(cpu, &set));
    assert_false(qr_machine_may_use(-1));
    assert_false(qr_machine_may_use(INT32_MAX));
    uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(qr_machine_memory_bytes(), 1 << 20, physical);
    assert_true(qr_machine_cpu_model()[0] != 0);
    size_t bytes = 64u << 20;
    uint64_t before = qr_machine_rss_bytes();
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, bytes);
    uint64_t grown = qr_machine_rss_bytes() - before;
    assert_in_range(grown, bytes - (bytes >> 3), bytes + (bytes >> 3));
    munmap(p, bytes);
}
