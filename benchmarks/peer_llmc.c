// SPDX-License-Identifier: Apache-2.0
// A training step of llm.c's GPT-2 with the products of a BLAS, for benchmarks/peer_llmc.sh:
//
//   peer_llmc CHECKPOINT TOKENS sequences tokens_per_sequence steps
//
// LLMC_SOURCE is its train_gpt2.c; WITH_BLAS: without matmul_forward and matmul_backward, which are
// here. So is an optimizer that clips, decays matrices only, as all peers do, and uses all threads.
#define TESTING  // no main()
#ifdef WITH_BLAS
#include <cblas.h>

void matmul_forward(float* out, const float* inp, const float* weight, const float* bias, int B,
                    int T, int C, int OC);
void matmul_backward(float* dinp, float* dweight, float* dbias, const float* dout, const float* inp,
                     const float* weight, int B, int T, int C, int OC);

#include LLMC_SOURCE

// out (B T, OC) = inp (B T, C) weight^T (OC, C) + bias
void matmul_forward(float* out, const float* inp, const float* weight, const float* bias, int B,
                    int T, int C, int OC) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, B * T, OC, C, 1, inp, C, weight, C, 0, out,
                OC);
    if (bias == NULL) return;
#pragma omp parallel for
    for (int row = 0; row < B * T; ++row) {
        for (int o = 0; o < OC; ++o) out[(size_t)row * OC + o] += bias[o];
    }
}

void matmul_backward(float* dinp, float* dweight, float* dbias, const float* dout, const float* inp,
                     const float* weight, int B, int T, int C, int OC) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, B * T, C, OC, 1, dout, OC, weight, C, 1,
                dinp, C);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, OC, C, B * T, 1, dout, OC, inp, C, 1,
                dweight, C);
    if (dbias == NULL) return;
    for (int row = 0; row < B * T; ++row) {
        for (int o = 0; o < OC; ++o) dbias[o] += dout[(size_t)row * OC + o];
    }
}
#else
#include LLMC_SOURCE
#endif

static const float kLearningRate = 1e-4F, kBeta1 = 0.9F, kBeta2 = 0.95F, kEpsilon = 1e-8F;
static const float kWeightDecay = 0.1F, kClipGrad = 1;

static int is_matrix(int tensor) {  // of ParameterTensors
    return tensor == 0 || tensor == 1 || tensor == 4 || tensor == 6 || tensor == 10 || tensor == 12;
}

static void update(GPT2* model, int step) {
    const size_t all = model->num_parameters;
    const float* const grads = model->grads_memory;
    if (model->m_memory == NULL) {
        model->m_memory = (float*)calloc(all, sizeof(float));
        model->v_memory = (float*)calloc(all, sizeof(float));
    }
    double squares = 0;
#pragma omp parallel for simd reduction(+ : squares)
    for (size_t i = 0; i < all; ++i) squares += (double)grads[i] * grads[i];
    const double norm = sqrt(squares);
    const float scale = norm > kClipGrad ? (float)(kClipGrad / (norm + 1e-6)) : 1;
    const float correction1 = 1 - powf(kBeta1, (float)step);
    const float correction2 = 1 - powf(kBeta2, (float)step);
    size_t first = 0;
    for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; ++tensor) {
        const size_t end = first + model->param_sizes[tensor];
        const float decay = is_matrix(tensor) ? kWeightDecay : 0;
#pragma omp parallel for simd
        for (size_t i = first; i < end; ++i) {
            const float g = scale * grads[i];
            const float m = kBeta1 * model->m_memory[i] + (1 - kBeta1) * g;
            const float v = kBeta2 * model->v_memory[i] + (1 - kBeta2) * g * g;
            model->m_memory[i] = m;
            model->v_memory[i] = v;
            const float by = m / correction1 / (sqrtf(v / correction2) + kEpsilon);
            model->params_memory[i] -= kLearningRate * (by + decay * model->params_memory[i]);
        }
        first = end;
    }
}

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    const int B = atoi(argv[3]), T = atoi(argv[4]), steps = atoi(argv[5]);
    GPT2 model;
    gpt2_build_from_checkpoint(&model, argv[1]);
    const size_t count = (size_t)B * T + 1;
    uint16_t* const read = (uint16_t*)mallocCheck(count * sizeof(uint16_t));
    int* const tokens = (int*)mallocCheck(count * sizeof(int));
    FILE* const file = fopenCheck(argv[2], "rb");
    freadCheck(read, sizeof(uint16_t), count, file);
    fcloseCheck(file);
    for (size_t i = 0; i < count; ++i) tokens[i] = read[i];
    for (int step = 1; step <= steps; ++step) {
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        gpt2_forward(&model, tokens, tokens + 1, B, T);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        update(&model, step);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("step %d loss %f seconds %f\n", step, model.mean_loss,
               (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
    }
    gpt2_free(&model);
    free(read);
    free(tokens);
    return 0;
}
