/* Runs commands of standard input on sequences of an exported language model, NAME tiny:
 *
 *   read SEQUENCE COUNT TOKEN...   prints the bits of the logits, or the text of the error
 *   skip SEQUENCE COUNT TOKEN...   the same without logits
 *   forget SEQUENCE LENGTH         bytes LENGTH COUNT            stop TOKEN
 *   draw SEQUENCE TEMPERATURE TOP_K TOP_P SEED COUNT             prints tokens
 */
#include "tiny_sequence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 3 };

static tiny_sequence *all[SEQUENCES];
static const float *logits[SEQUENCES];

static int64_t number(void) {
  int64_t found = 0;
  return scanf("%" SCNd64, &found) == 1 ? found : 0;
}

static void answer(int error) {
  if (error) {
    printf("%s", tiny_sequence_error_text(error));
  }
  printf("\n");
}

static void read_tokens(int64_t which, int wanted) {
  int64_t count = number(), *tokens = malloc((size_t)(count > 0 ? count : 1) * sizeof *tokens);
  for (int64_t n = 0; n < count; n++) {
    tokens[n] = number();
  }
  int error = tiny_sequence_read(all[which], tokens, count, wanted ? &logits[which] : NULL);
  for (int64_t n = 0; wanted && !error && n < TINY_VOCABULARY; n++) {
    uint32_t bits;
    memcpy(&bits, logits[which] + n, 4);
    printf("%08" PRIx32, bits);
  }
  answer(error);
  free(tokens);
}

static void draw(int64_t which) {
  double temperature, top_p;
  int64_t top_k = -1;
  if (scanf("%lf %" SCNd64 " %lf", &temperature, &top_k, &top_p) != 3) {
    exit(3);
  }
  uint64_t state = (uint64_t)number();
  for (int64_t count = number(); count > 0; count--) {
    printf("%" PRId64 " ", tiny_draw(logits[which], temperature, top_k, top_p, &state));
  }
  answer(0);
}

int main(int count, char **arguments) {
  tiny *model = NULL;
  char word[16];
  int error = count == 2 ? tiny_open(arguments[1], &model) : TINY_NO_FILE;
  for (int n = 0; !error && n < SEQUENCES; n++) {
    error = tiny_sequence_open(model, &all[n]);
  }
  if (!error) {
    error = tiny_set_threads(model, TINY_THREADS);
  }
  while (!error && scanf("%15s", word) == 1) {
    int64_t first = number();
    if (!strcmp(word, "read") || !strcmp(word, "skip")) {
      read_tokens(first, word[0] == 'r');
    } else if (!strcmp(word, "forget")) {
      answer(tiny_sequence_forget(all[first], number()));
    } else if (!strcmp(word, "bytes")) {
      printf("%zu %zu\n", tiny_sequence_bytes(first), tiny_step_bytes(first, number()));
    } else if (!strcmp(word, "stop")) {
      printf("%d\n", tiny_is_stop(first));
    } else if (!strcmp(word, "draw")) {
      draw(first);
    }
  }
  for (int n = 0; n < SEQUENCES; n++) {
    tiny_sequence_close(all[n]);
  }
  tiny_close(model);
  if (error) {
    fprintf(stderr, "%s\n", tiny_sequence_error_text(error));
  }
  return error != 0;
}
