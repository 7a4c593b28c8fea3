/* quire bench kernels: what one core does at most. */
#include "base/machine.h"
#include "bench/bench_internal.h"
#include "bench/machine.h"

const char bench_kernels_help[] =
    "First what this machine does at most, measured now: operations a second from registers, and bytes a second of a plain\n"
    "read of buffers that fit into each cache, and of memory.\n\n"
    "  quire bench kernels\n"
    "  quire bench kernels --isa avx2        as a smaller machine would run\n";

static void print_machine(const struct bench_machine *m, FILE *out)
{
    fprintf(out, "%s, %d cores\n\n", qr_machine_cpu_model(), m->n_cores);
    for (int i = 0; i < m->n_peaks; i++)
        fprintf(out, "%-6s by %-12s %8.1f Gop/s a core\n", m->peaks[i].name, m->peaks[i].isa, m->peak_gops[i]);
    for (int i = 0; i < MACHINE_READS; i++)
        fprintf(out, "read of %6zu KiB    %8.1f GB/s a core\n", m->read_bytes[i] >> 10, m->read_gbs[i]);
    fprintf(out, "read by all cores     %8.1f GB/s\n", m->read_all_gbs);
}

enum qr_status bench_kernels(const struct bench_args *a, struct qr_error *err)
{
    struct bench_machine m;
    bench_machine_measure((int)a->conf->threads, &m);
    print_machine(&m, a->out);
    return QR_OK;
}
