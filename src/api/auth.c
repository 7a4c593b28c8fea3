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

// The number of a key from 1, 0 for an unknown one. Every key is compared, also after a match.
static unsigned known(const struct api_conf *conf, const char *given)
{
    unsigned which = 0;
    for (int i = 0; i < conf->n_keys; i++) which |= (unsigned)(i + 1) * (differs(given, conf->keys[i]) == 0);
    return which;
}

bool auth_ok(const struct api_conf *conf, const char *authorization, const char *x_api_key, unsigned *key)
{
    *key = 0;
    if (conf->n_keys == 0) return true;
    if (authorization && strncasecmp(authorization, "Bearer ", 7) == 0) {
        authorization += 7;
        while (*authorization == ' ') authorization++;
        *key = known(conf, authorization);
    }
    if (*key == 0 && x_api_key) *key = known(conf, x_api_key);
    return *key != 0;
}
