/* The cost table that sim and plan take, and what is to be known of it: how far off it is, of which model and machine. */
#include <stdio.h>
#include <string.h>

#include "cmd/sim_input.h"

#define ERROR_WORTH_SAYING 0.1 // median: what a quiet machine gives is below
#define COPY_BYTES_PER_NS 10.0 // within this machine's memory
#define NAME_MAX_COMPARED 55   // longer names of models are cut

enum qr_status cmd_sim_costs(const char *path, struct qr_sim_table *out, struct qr_error *err)
{
    enum qr_status st = qr_sim_table_read(path, out, err);
    if (st == QR_OK && out->error_median >= ERROR_WORTH_SAYING)
        fprintf(stderr, "quire: %s: the table is off by %.1f %% (median) of the steps that it was measured by, and so are times below\n",
                path, 100 * out->error_median);
    return st;
}

uint64_t cmd_sim_copy_ns(const struct qr_sim_table *t, bool is_named, double block_bytes)
{
    if (t->has_copy) return t->copy_ns;
    return is_named ? QR_SIM_COPY_BY_HARDWARE : (uint64_t)(block_bytes / COPY_BYTES_PER_NS);
}

// A file's name is a model's with .gguf behind it.
static int name_len(const char *name)
{
    size_t n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0) n -= 5;
    return n < NAME_MAX_COMPARED ? (int)n : NAME_MAX_COMPARED;
}

void cmd_sim_say_costs(const char *path, const struct qr_sim_table *t, const char *model, const char *machine)
{
    int n = name_len(model), n_table = name_len(t->model);
    if (n_table > 0 && (n != n_table || memcmp(model, t->model, (size_t)n) != 0))
        fprintf(stderr, "quire: --costs: %.150s was measured with %s, not %.*s: steps below take what that model's take\n", path,
                t->model, n, model);
    if (machine && t->processor[0] && strcmp(machine, t->processor) != 0)
        fprintf(stderr, "quire: --costs: %.150s was measured on %s, not %s: steps below take what they took there\n", path,
                t->processor, machine);
}
