/* Encodes sentences with MiniLM: a program without Python.
 *
 *   encode minilm.weights [BATCH] < tokens > embeddings
 *
 * A line of tokens is a sentence: its token ids, [CLS] and [SEP] included. A line of embeddings is
 * its 384 numbers. BATCH sentences (8 without it) are encoded at a time, padded to the longest.
 */
#include "minilm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_TOKENS = 512, WIDTH = 384 };

/* A batch: rows of MOST_TOKENS ids each, and how many of them are tokens. */
typedef struct {
  int64_t *ids, *lengths;
  int64_t rows, longest;
} batch;

/* What is reused from call to call; it grows. */
typedef struct {
  void *data;
  size_t bytes;
} buffer;

static void *reserve(buffer *what, size_t bytes) {
  if (bytes > what->bytes || !what->data) {
    free(what->data);
    what->data = malloc(bytes + 1);
    what->bytes = what->data ? bytes : 0;
  }
  return what->data;
}

/* The ids of one line; -1 at the end of the input, -2 for what is no line of ids. */
static int64_t read_line(int64_t *ids) {
  int64_t count = 0;
  int next = getchar();
  if (next == EOF) {
    return -1;
  }
  while (next != '\n' && next != EOF) {
    if (next == ' ' || next == '\r') {
      next = getchar();
      continue;
    }
    int64_t id = 0;
    if (next < '0' || next > '9' || count == MOST_TOKENS) {
      return -2;
    }
    while (next >= '0' && next <= '9' && id < INT32_MAX) {
      id = 10 * id + (next - '0');
      next = getchar();
    }
    ids[count++] = id;
  }
  return count;
}

/* Fill a batch from the input; false for input that is none. */
static int read_batch(batch *into, int64_t most) {
  into->rows = 0;
  into->longest = 1;
  while (into->rows < most) {
    int64_t length = read_line(into->ids + into->rows * MOST_TOKENS);
    if (length < 0) {
      return length == -1;
    }
    into->lengths[into->rows++] = length;
    into->longest = length > into->longest ? length : into->longest;
  }
  return 1;
}

static int encode(minilm *model, const batch *sentences, buffer memory[4]) {
  const int64_t rows = sentences->rows, longest = sentences->longest;
  const int64_t sizes[MINILM_SIZES] = {rows, longest, rows, longest};
  int error = minilm_bind(model, sizes);
  if (error) {
    return error;
  }
  int64_t *ids = reserve(&memory[0], minilm_input_bytes(model, MINILM_INPUT_INPUT_IDS));
  int64_t *mask = reserve(&memory[1], minilm_input_bytes(model, MINILM_INPUT_ATTENTION_MASK));
  const void *inputs[MINILM_INPUTS] = {ids, mask};
  void *outputs[MINILM_OUTPUTS];
  for (int n = 0; n < MINILM_OUTPUTS; n++) {
    outputs[n] = reserve(&memory[2 + n], minilm_output_bytes(model, n));
  }
  if (!ids || !mask || !outputs[0] || !outputs[1]) {
    return MINILM_NO_MEMORY;
  }
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t at = 0; at < longest; at++) {
      const int inside = at < sentences->lengths[row];
      ids[row * longest + at] = inside ? sentences->ids[row * MOST_TOKENS + at] : 0;
      mask[row * longest + at] = inside;
    }
  }
  error = minilm_run(model, inputs, outputs, NULL);
  const float *vectors = outputs[MINILM_OUTPUT_SENTENCE_EMBEDDING];
  for (int64_t row = 0; !error && row < rows; row++) {
    for (int n = 0; n < WIDTH; n++) {
      printf("%.9g%c", (double)vectors[row * WIDTH + n], n + 1 < WIDTH ? ' ' : '\n');
    }
  }
  return error;
}

int main(int count, char **arguments) {
  const long most = count > 2 ? strtol(arguments[2], NULL, 10) : 8;
  batch sentences = {0};
  buffer memory[4] = {{0}};
  minilm *model = NULL;
  if (count < 2 || most < 1 || most > 64) {
    fprintf(stderr, "usage: %s minilm.weights [1..64] < tokens > embeddings\n", arguments[0]);
    return 2;
  }
  int error = minilm_open(arguments[1], &model);
  sentences.ids = malloc((size_t)most * MOST_TOKENS * sizeof *sentences.ids);
  sentences.lengths = malloc((size_t)most * sizeof *sentences.lengths);
  if (!error && !(sentences.ids && sentences.lengths)) {
    error = MINILM_NO_MEMORY;
  }
  while (!error) {
    if (!read_batch(&sentences, most)) {
      fprintf(stderr, "a line is no list of at most %d token ids\n", MOST_TOKENS);
      return 1;
    }
    if (sentences.rows == 0) {
      break;
    }
    error = encode(model, &sentences, memory);
  }
  if (error) {
    fprintf(stderr, "%s (error %d)\n", minilm_error_text(error), error);
  }
  for (int n = 0; n < 4; n++) {
    free(memory[n].data);
  }
  free(sentences.ids);
  free(sentences.lengths);
  minilm_close(model);
  return error != 0;
}
