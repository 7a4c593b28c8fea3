#define _GNU_SOURCE
#include "base/machine.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine_internal.h"

#define LINE_BYTES 4096
#define CPUS_MAX 8192 // the kernel's own limit (CONFIG_NR_CPUS)

// Reads the first number of a small file. False when there is none ("max" among them).
static bool read_number(const char *path, long long *out)
{
    char text[64];
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    char *end;
    if (!ok) return false;
    *out = strtoll(text, &end, 10);
    return end != text;
}

// The number behind `key` at the start of a line ("MemTotal:", "hierarchical_memory_limit").
static bool read_keyed(const char *path, const char *key, unsigned long long *out)
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) found = sscanf(line + strlen(key), "%llu", out) == 1;
    fclose(f);
    return found;
}

// Is `word` one of the comma-separated words of list?
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',')) {
        if (*p == ',') p++;
        if (strncmp(p, word, n) == 0 && (p[n] == 0 || p[n] == ',')) return true;
    }
    return false;
}

// mountinfo writes space, tab, newline and backslash as \ooo.
static void unescape_octal(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
            s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
}

struct mount {
    char top[LINE_BYTES], point[LINE_BYTES];
};

// Where the hierarchy of a v1 controller, or v2's (controller ""), is mounted, and which folder of it is on
// top.
static bool find_mount(const char *root, const char *controller, struct mount *out)
{
    char path[LINE_BYTES], line[LINE_BYTES];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) {
        char type[64], options[LINE_BYTES];
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", out->top, out->point) != 2) continue;
        if (sscanf(tail, " - %63s %*s %4095s", type, options) != 2) continue;
        found = controller[0] ? strcmp(type, "cgroup") == 0 && has_word(options, controller)
                              : strcmp(type, "cgroup2") == 0;
    }
    fclose(f);
    unescape_octal(out->top);
    unescape_octal(out->point);
    return found;
}

// This process's group in that hierarchy, as /proc/self/cgroup names it: "/a/b".
static bool find_group(const char *root, const char *controller, char *out, size_t cap)
{
    char path[LINE_BYTES], line[LINE_BYTES];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *controllers++ = 0;
        *group++ = 0;
        found = controller[0] ? has_word(controllers, controller) : strcmp(line, "0") == 0 && !controllers[0];
        if (found) snprintf(out, cap, "%s", group);
    }
    fclose(f);
    return found;
}

typedef void level_fn(const char *dir, void *arg);

// Calls fn for every folder of the hierarchy from this process's group up to its mount point. A container
// without a cgroup namespace names its group from the host's top while only its own part is mounted: the part
// that the mount shows on top is cut off. Folders that are not there read as without limits.
static void each_level(const char *root, const char *controller, level_fn *fn, void *arg)
{
    struct mount m;
    char group[LINE_BYTES], dir[3 * LINE_BYTES];
    if (!find_mount(root, controller, &m) || !find_group(root, controller, group, sizeof group)) return;
    size_t top = strcmp(m.top, "/") == 0 ? 0 : strlen(m.top);
    const char *below = group;
    if (top) below = strncmp(group, m.top, top) == 0 && (group[top] == '/' || !group[top]) ? group + top : "";
    int base = snprintf(dir, sizeof dir, "%s%s", root, m.point);
    snprintf(dir + base, sizeof dir - (size_t)base, "%s", below);
    for (;;) {
        fn(dir, arg);
        char *slash = strrchr(dir + base, '/');
        if (!slash) return;
        *slash = 0;
    }
}

static void lower(uint64_t *limit, uint64_t v)
{
    if (v < *limit) *limit = v;
}

static bool number_in(const char *dir, const char *name, long long *out)
{
    char path[4 * LINE_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return read_number(path, out);
}

static void memory_v2(const char *dir, void *arg)
{
    // Above memory.high the kernel throttles to a standstill: it bounds us as memory.max does.
    long long v;
    if (number_in(dir, "memory.max", &v) && v >= 0) lower(arg, (uint64_t)v);
    if (number_in(dir, "memory.high", &v) && v >= 0) lower(arg, (uint64_t)v);
}

static void memory_v1(const char *dir, void *arg)
{
    char path[4 * LINE_BYTES];
    long long v;
    unsigned long long u;
    if (number_in(dir, "memory.limit_in_bytes", &v) && v >= 0) lower(arg, (uint64_t)v);
    snprintf(path, sizeof path, "%s/memory.stat",
             dir); // knows the limits of levels that are not mounted here
    if (read_keyed(path, "hierarchical_memory_limit", &u)) lower(arg, u);
}

static void lower_cpus(uint64_t *limit, long long quota_us, long long period_us)
{
    if (quota_us > 0 && period_us > 0) lower(limit, (uint64_t)((quota_us + period_us - 1) / period_us));
}

static void cpus_v2(const char *dir, void *arg)
{
    char path[4 * LINE_BYTES];
    long long quota_us, period_us;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    FILE *f = fopen(path, "re");
    if (!f) return;
    if (fscanf(f, "%lld %lld", &quota_us, &period_us) == 2) lower_cpus(arg, quota_us, period_us);
    fclose(f);
}

static void cpus_v1(const char *dir, void *arg)
{
    long long quota_us, period_us;
    if (number_in(dir, "cpu.cfs_quota_us", &quota_us) && number_in(dir, "cpu.cfs_period_us", &period_us))
        lower_cpus(arg, quota_us, period_us);
}

int machine_cpus_at(const char *root, int n_affinity)
{
    uint64_t n = n_affinity > 0 ? (uint64_t)n_affinity : 1;
    each_level(root, "", cpus_v2, &n);
    each_level(root, "cpu", cpus_v1, &n);
    return n ? (int)n : 1;
}

uint64_t machine_memory_at(const char *root)
{
    char path[LINE_BYTES];
    unsigned long long kib;
    uint64_t bytes = INT64_MAX;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_keyed(path, "MemTotal:", &kib)) bytes = kib * 1024;
    each_level(root, "", memory_v2, &bytes);
    each_level(root, "memory", memory_v1, &bytes);
    return bytes;
}

void machine_cpu_model_at(const char *root, char *out, size_t cap)
{
    char path[LINE_BYTES], line[LINE_BYTES], maker[32] = "", part[32] = "";
    snprintf(out, cap, "unknown");
    snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    FILE *f = fopen(path, "re");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        line[strcspn(line, "\n")] = 0;
        if (value && strncmp(line, "model name", 10) == 0) {
            snprintf(out, cap, "%s", value + 1 + strspn(value + 1, " "));
            break;
        }
        // 64-bit ARM gives numbers only.
        if (value && strncmp(line, "CPU implementer", 15) == 0) sscanf(value + 1, "%31s", maker);
        if (value && strncmp(line, "CPU part", 8) == 0) sscanf(value + 1, "%31s", part);
        if (maker[0] && part[0]) {
            snprintf(out, cap, "ARM implementer %s part %s", maker, part);
            break;
        }
    }
    fclose(f);
}

static int affinity_cpus(void)
{
    int n = 1;
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    if (set && sched_getaffinity(0, bytes, set) == 0) n = CPU_COUNT_S(bytes, set);
    if (set) CPU_FREE(set);
    return n;
}

int qr_machine_cpus(void)
{
    return machine_cpus_at("", affinity_cpus());
}

bool qr_machine_may_use(int cpu)
{
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    bool may = set && cpu >= 0 && cpu < CPUS_MAX;
    if (may) {
        CPU_ZERO_S(bytes, set);
        may = sched_getaffinity(0, bytes, set) == 0 && CPU_ISSET_S((size_t)cpu, bytes, set);
    }
    if (set) CPU_FREE(set);
    return may;
}

uint64_t qr_machine_memory_bytes(void)
{
    return machine_memory_at("");
}

uint64_t qr_machine_rss_bytes(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    if (fscanf(f, "%*u %llu", &pages) != 1) pages = 0;
    fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static char cpu_model[128];

static void read_cpu_model(void)
{
    machine_cpu_model_at("", cpu_model, sizeof cpu_model);
}

const char *qr_machine_cpu_model(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_cpu_model);
    return cpu_model;
}
