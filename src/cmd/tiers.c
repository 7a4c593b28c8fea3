/* Options about preemption and the tiers beside the block pool. */
#include <string.h>

#include "cmd/cmd.h"

static enum qr_status set_mode(struct cmd_setup *s, const struct qr_conf *c, struct qr_error *err)
{
    static const char *const names[] = {
        [QR_PREEMPT_AUTO] = "auto", [QR_PREEMPT_SWAP] = "swap", [QR_PREEMPT_RECOMPUTE] = "recompute"};
    for (int i = 0; i < 3; i++)
        if (strcmp(c->preemption_mode, names[i]) == 0) return s->lib.preempt_mode = (enum qr_preempt_mode)i, QR_OK;
    return qr_fail_param(err, QR_EINVAL, "preemption-mode",
                         "--preemption-mode: expected auto, swap or recompute, got \"%.40s\"", c->preemption_mode);
}

// --check: after every step the invariants, or in every step a preemption of whatever runs.
static enum qr_status set_check(struct cmd_setup *s, const struct qr_conf *c, struct qr_error *err)
{
    bool swap = strcmp(c->check, "preempt-swap") == 0, recompute = strcmp(c->check, "preempt-recompute") == 0;
    if (!swap && !recompute && strcmp(c->check, "step") != 0 && strcmp(c->check, "no") != 0)
        return qr_fail_param(err, QR_EINVAL, "check",
                             "--check: expected no, step, preempt-swap or preempt-recompute, got \"%.40s\"",
                             c->check);
    s->lib.check_every_step = strcmp(c->check, "no") != 0;
    if (swap || recompute) {
        s->lib.preempt_every = 1;
        s->lib.preempt_mode = swap ? QR_PREEMPT_SWAP : QR_PREEMPT_RECOMPUTE;
    }
    return QR_OK;
}

static enum qr_status set_prefix_tiers(struct cmd_setup *s, const struct qr_conf *c, struct qr_error *err)
{
    s->lib.prefix_ram_bytes = c->prefix_cache_ram;
    s->lib.prefix_file = c->prefix_cache_file[0] ? c->prefix_cache_file : NULL;
    s->lib.prefix_file_bytes = c->prefix_cache_file_size;
    if (!c->prefix_cache_file[0] != !c->prefix_cache_file_size)
        return qr_fail_param(err, QR_EINVAL, "prefix-cache-file",
                             "--prefix-cache-file PATH and --prefix-cache-file-size BYTES go together");
    bool any = c->prefix_cache_ram > 0 || c->prefix_cache_file[0];
    if (any && (!c->enable_prefix_caching || strcmp(c->kv_layout, "paged") != 0))
        return qr_fail_param(err, QR_EINVAL, "prefix-cache-ram",
                             "--prefix-cache-ram and --prefix-cache-file need prefix caching and --kv-layout paged");
    if (c->prefix_cache_file[0] && strcmp(c->prefix_cache_file, c->swap_file) == 0)
        return qr_fail_param(err, QR_EINVAL, "prefix-cache-file",
                             "--prefix-cache-file and --swap-file are two files, got %.120s twice", c->swap_file);
    return QR_OK;
}

enum qr_status cmd_setup_tiers(struct cmd_setup *s, const struct qr_conf *c, struct qr_error *err)
{
    enum qr_status st = set_mode(s, c, err);
    if (st == QR_OK) st = set_check(s, c, err);
    if (st != QR_OK) return st;
    s->lib.swap_bytes = c->swap_space;
    s->lib.swap_file = c->swap_file[0] ? c->swap_file : NULL;
    s->lib.swap_file_bytes = c->swap_file_size;
    if (!c->swap_file[0] != !c->swap_file_size)
        return qr_fail_param(err, QR_EINVAL, c->swap_file[0] ? "swap-file-size" : "swap-file",
                             "--swap-file PATH and --swap-file-size BYTES go together");
    if (c->swap_file[0] && strcmp(c->kv_layout, "paged") != 0)
        return qr_fail_param(err, QR_EINVAL, "swap-file", "--swap-file goes with --kv-layout paged only");
    if ((st = set_prefix_tiers(s, c, err)) != QR_OK) return st;
    if (s->lib.preempt_mode == QR_PREEMPT_SWAP && !c->swap_space && !c->swap_file[0])
        return qr_fail_param(err, QR_EINVAL, "swap-space",
                             "swapping preempted requests out needs room for them: --swap-space, as 2G, or --swap-file");
    // Other servers count this one in GiB.
    if (c->swap_space > 0 && c->swap_space < 1 << 16)
        return qr_fail_param(err, QR_EINVAL, "swap-space",
                             "--swap-space: %llu bytes hold no KV block; for GiB write %lluG",
                             (unsigned long long)c->swap_space, (unsigned long long)c->swap_space);
    return QR_OK;
}
