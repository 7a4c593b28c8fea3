#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

static const struct cmd_verb verbs[] = {
    {"serve", cmd_serve, "serve a model to many users over an OpenAI-compatible API"},
    {"run", cmd_run, "answer one prompt, or chat, in this terminal"},
    {"sim", cmd_sim, "simulate serving a model on any machine, with this very scheduler"},
    {"plan", cmd_plan, "find settings and a number of machines for a load and a latency target"},
    {"inspect", cmd_inspect, "look at this processor, the kernels, a model file, a tensor"},
    {"bench", cmd_bench, "measure this machine, a model on it, or a running server"},
    {"top", cmd_top, "watch a running server's memory: blocks, requests, tokens a second"},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static void usage(FILE *out)
{
    fprintf(out, "quire %s: serves large language models to many users from ordinary CPU servers\n\n",
            QUIRE_VERSION);
    for (int i = 0; i < N_VERBS; i++) fprintf(out, "  quire %-8s %s\n", verbs[i].name, verbs[i].summary);
    fprintf(out, "\nTry:\n"
                 "  quire run smollm2-135m-instruct \"Why is the sky blue?\"\n"
                 "  quire serve smollm2-135m-instruct\n"
                 "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
                 "       -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}],\"temperature\":0}'\n"
                 "\nA model is a .gguf file, or the name of one in ~/.cache/quire/models.\n"
                 "quire VERB --help explains a verb. quire --version prints the version.\n");
}

// A descriptor 0, 1 or 2 that came closed would go to the next file or socket, and a log line to a client.
// Filled so that using it fails.
static void fill_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) _exit(1);
}

static int run_verb(const struct cmd_verb *verb, int argc, char **argv)
{
    int rc = verb->run(argc, argv);
    struct qr_error err = {0};
    if ((fflush(stdout) == 0 && !ferror(stdout)) || rc != 0) return rc;
    (void)qr_fail(&err, QR_EIO, "cannot write to standard output");
    return cmd_fail(1, &err);
}

static int unknown_verb(const char *word)
{
    char list[128] = "";
    struct qr_error err = {0};
    for (int i = 0; i < N_VERBS; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", verbs[i].name);
    }
    (void)qr_fail(&err, QR_EINVAL, "no verb is called \"%.40s\"; there are %s (quire --help)", word, list);
    return cmd_fail(2, &err);
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    signal(SIGXFSZ, SIG_IGN); // beyond a limit of file sizes, a write fails and says so
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        printf("quire %s\n", QUIRE_VERSION);
        return 0;
    }
    if (strcmp(word, "help") == 0 && argc > 2) { // `quire help serve` is `quire serve --help`
        static char help[] = "--help";
        argv[1] = argv[2];
        argv[2] = help;
        word = argv[1];
    } else if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        usage(stdout);
        return 0;
    }
    for (int i = 0; i < N_VERBS; i++)
        if (strcmp(word, verbs[i].name) == 0) return run_verb(&verbs[i], argc - 1, argv + 1);
    return unknown_verb(word);
}
