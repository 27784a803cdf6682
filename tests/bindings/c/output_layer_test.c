/* SPDX-License-Identifier: Apache-2.0 */
/* What include/vocabpipe/c/output_layer.h promises, from C99: two shards of a vocabulary of four rows whose
 * logits are known. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "vocabpipe/c/output_layer.h"

enum { kTokens = 2, kHidden = 2, kShards = 2, kRows = 2 };

static int failed = 0;

#define CHECK(condition)                                                                                \
    do {                                                                                                \
        if (!(condition)) {                                                                             \
            printf("FAILED: line %d: %s (%s)\n", __LINE__, #condition, vp_output_layer_last_error());   \
            ++failed;                                                                                   \
        }                                                                                               \
    } while (0)

static vp_tensor tensor(void* data, uint8_t code, int32_t ndim, int64_t* shape) {
    vp_tensor t;
    memset(&t, 0, sizeof t);
    t.data = data;
    t.device_type = 1;
    t.ndim = ndim;
    t.type_code = code;
    t.type_bits = 32;
    t.type_lanes = 1;
    t.shape = shape;
    return t;
}

int main(void) {
    /* Rows (1, 0), (0, 1) | (1, 1), (0, 0); the first token is (1, 0) and its label row 2. */
    float weights[kShards][kRows * kHidden] = {{1, 0, 0, 1}, {1, 1, 0, 0}};
    float hidden[kTokens * kHidden] = {1, 0, 3, 4};
    int32_t labels[kTokens] = {2, -100}; /* the second token is ignored */
    float gradients[kTokens] = {1, 1};
    float statistics[kShards * kTokens * 4];
    float exponentials[kShards][kTokens * kRows];
    float losses[kTokens], factors[kTokens * 2], sum[kTokens * kHidden] = {0};
    int64_t by_token[2] = {kTokens, kHidden}, of_weight[2] = {kRows, kHidden}, of_logits[2] = {kTokens, kRows};
    int64_t of_statistics[2] = {kTokens, 4}, of_all[2] = {kShards * kTokens, 4}, of_factors[2] = {kTokens, 2};
    vp_tensor x = tensor(hidden, 2, 2, by_token), y = tensor(labels, 0, 1, by_token);
    vp_tensor g = tensor(gradients, 2, 1, by_token), l = tensor(losses, 2, 1, by_token);
    vp_tensor all = tensor(statistics, 2, 2, of_all), f = tensor(factors, 2, 2, of_factors);
    vp_output_layer* layers[kShards];

    for (int k = 0; k < kShards; ++k) {
        vp_output_layer_options options = VP_OUTPUT_LAYER_OPTIONS;
        options.first_row = k * kRows;
        options.vocab_size = kShards * kRows;
        vp_tensor w = tensor(weights[k], 2, 2, of_weight), e = tensor(exponentials[k], 2, 2, of_logits);
        vp_tensor mine = tensor(statistics + k * kTokens * 4, 2, 2, of_statistics);
        CHECK(vp_output_layer_make(&options, &w, &layers[k]) == VP_OK);
        CHECK(vp_output_layer_score(layers[k], &x, &y, &e, &mine) == VP_OK);
    }
    const double z = 2 * exp(1) + 2; /* logits 1, 0, 1, 0 */
    for (int k = 0; k < kShards; ++k) {
        float part[kTokens * kHidden], gradient[kRows * kHidden];
        vp_tensor e = tensor(exponentials[k], 2, 2, of_logits), dx = tensor(part, 2, 2, by_token);
        vp_tensor dw = tensor(gradient, 2, 2, of_weight);
        CHECK(vp_output_layer_combine(layers[k], &all, k, &y, &g, &l, &f) == VP_OK);
        CHECK(fabs(losses[0] - (log(z) - 1)) < 1e-6 && losses[1] == 0);
        CHECK(vp_output_layer_input_gradient(layers[k], &e, &f, &y, &g, &dx) == VP_OK);
        for (int i = 0; i < kTokens * kHidden; ++i) sum[i] += part[i];
        CHECK(vp_output_layer_weight_gradient(layers[k], &x, &e, &f, &y, &g, &dw, 0) == VP_OK);
        /* x times (softmax - 1 of the label); x is (1, 0). */
        CHECK(fabs(gradient[0] - (exp(1) / z - (k == 1 ? 1 : 0))) < 1e-6 && gradient[1] == 0);
        CHECK(fabs(gradient[2] - 1 / z) < 1e-6 && gradient[3] == 0);
        vp_output_layer_free(layers[k]);
    }
    CHECK(fabs(sum[0] - (2 * exp(1) / z - 1)) < 1e-6);
    CHECK(fabs(sum[1] - ((1 + exp(1)) / z - 1)) < 1e-6);
    CHECK(sum[2] == 0 && sum[3] == 0);

    CHECK(vp_output_layer_make(NULL, NULL, layers) == VP_USAGE);
    CHECK(strstr(vp_output_layer_last_error(), "weight: is NULL") != NULL);
    return failed > 0;
}
