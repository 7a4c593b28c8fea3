#include "sim/system.h"

#include <string.h>

static const struct qr_sim_system systems[] = {
#define QR_SIM_SYSTEM(name, layout, batching, block, seqs, tokens, what) {name, layout, batching, block, seqs, tokens, what},
#include "sim/systems.def"
#undef QR_SIM_SYSTEM
};
enum { N_SYSTEMS = sizeof systems / sizeof systems[0] };

int qr_sim_system_count(void)
{
    return N_SYSTEMS;
}

const struct qr_sim_system *qr_sim_system_at(int i)
{
    return &systems[i];
}

enum qr_status qr_sim_system_find(const char *name, const struct qr_sim_system **out, struct qr_error *err)
{
    struct qr_buf list = {0};
    for (int i = 0; i < N_SYSTEMS; i++)
        if (strcmp(systems[i].name, name) == 0) {
            *out = &systems[i];
            return QR_OK;
        }
    for (int i = 0; i < N_SYSTEMS; i++) qr_buf_printf(&list, "%s%s", i ? ", " : "", systems[i].name);
    enum qr_status st = qr_fail(err, QR_ENOTFOUND, "--system: expected one of %s, got \"%.40s\"",
                                list.data ? list.data : "", name);
    qr_buf_fini(&list);
    return st;
}
