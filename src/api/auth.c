#include "api/api_internal.h"

#include <string.h>
#include <strings.h>

// Longer keys than this never match. Comparing always walks the whole length, so that time says nothing of
// the key.
#define KEY_BYTES_MAX 512

static unsigned differs(const char *given, const char *key)
{
    unsigned char a[KEY_BYTES_MAX] = {0}, b[KEY_BYTES_MAX] = {0};
    size_t n = strnlen(given, KEY_BYTES_MAX), k = strnlen(key, KEY_BYTES_MAX);
    memcpy(a, given, n);
    memcpy(b, key, k);
    unsigned d = (unsigned)(n ^ k) | (n == KEY_BYTES_MAX);
    for (size_t i = 0; i < KEY_BYTES_MAX; i++) d |= (unsigned)(a[i] ^ b[i]);
    return d;
}

// Every key is compared, also after a match.
static bool known(const struct api_conf *conf, const char *given)
{
    unsigned n = 0;
    for (int i = 0; i < conf->n_keys; i++) n += differs(given, conf->keys[i]) == 0;
    return n > 0;
}

bool auth_ok(const struct api_conf *conf, const char *authorization, const char *x_api_key)
{
    if (conf->n_keys == 0) return true;
    if (authorization && strncasecmp(authorization, "Bearer ", 7) == 0) {
        authorization += 7;
        while (*authorization == ' ') authorization++;
        if (known(conf, authorization)) return true;
    }
    return x_api_key && known(conf, x_api_key);
}
