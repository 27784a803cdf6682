// SPDX-License-Identifier: Apache-2.0
// What GPUs alone promise of the output layer: chunks of columns, rows of blocks and warps, sizes
// of workspaces. What they compute is compared in tests/conformance/.
#include "kernels/cuda/operators.hpp"

#include "tests/conformance/sharded_vocabulary.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

class VocabularyWorkspace : public OnDevice {};

TEST_F(VocabularyWorkspace, IsAtMostAQuarterOfALargeBf16NumeratorInSAndInT) {
    for (const int64_t tokens : {1, 512, 4096, 5000, 32768}) {
        for (const int64_t rows : {16384, 32768, 50257, 131072, 151936}) {
            const int64_t exp_logits = 2 * tokens * rows;
            const int64_t score = cuda::vocabulary_score_workspace_bytes(tokens, rows, DType::bf16);
            constexpr int64_t kLeast = int64_t{32} << 20;
            EXPECT_LE(score, std::max(exp_logits / 4, kLeast)) << tokens << " tokens, " << rows;
            // No smaller than needed: halving it would cost efficiency.
            EXPECT_GE(2 * score, std::min(std::max(exp_logits / 4, kLeast), 2 * exp_logits));
            EXPECT_LE(
                cuda::vocabulary_weight_gradient_workspace_bytes(tokens, rows / 4, DType::bf16),
                exp_logits / 4);
        }
    }
    EXPECT_EQ(cuda::vocabulary_input_gradient_workspace_bytes(4096), 0);
}

using CudaVocabularyScore = VocabularyTest<>;

/// So many that every warp has a row, on any GPU.
int64_t tokens_for_all_warps() {
    int multiprocessors = 0;
    cuda::check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0),
                "cudaDeviceGetAttribute");
    return 16 * multiprocessors;
}

TEST_P(CudaVocabularyScore, TakesTheColumnsInAsManyChunksAsTheWorkspaceAllows) {
    const LossOptions options{.label_smoothing = 0.1F, .z_loss = 1e-3F};
    for (const int64_t gap : {0, 3}) {
        const auto problem = random_problem(23, 6, 8, 1100, DType::fp32, 2, options, gap);
        const ShardedOutputs out = run_shards(problem, {1100}, {.gap = gap, .chunk_columns = 256});
        expect_within_fp32_bound(problem, out.result);
    }
}

// So many tokens that every warp takes a row of its own, on any GPU; the last block is not full.
TEST_P(CudaVocabularyScore, TakesARowPerWarpWhereThereAreManyTokens) {
    const int64_t tokens = tokens_for_all_warps() + 3;
    for (const LossOptions& options :
         {LossOptions{.label_smoothing = 0.1F, .z_loss = 1e-3F}, LossOptions{.logit_softcap = 3}}) {
        for (const int64_t gap : {0, 3}) {
            const auto problem = random_problem(25, tokens, 5, 611, DType::fp32, 2, options, gap);
            for (const int64_t chunk_columns : {0, 256}) {
                const ShardedOutputs out =
                    run_shards(problem, {311, 300}, {.gap = gap, .chunk_columns = chunk_columns});
                expect_within_fp32_bound(problem, out.result);
            }
        }
    }
    // What rises far above the reference point is followed here, too.
    Problem problem = random_problem(13, tokens, 4, 2600, DType::bf16, 1, {});
    for (int64_t n = 0; n < tokens; ++n) problem.x.set(n, 0, n % 2 == 0 ? 1.0 : 0.25);
    for (int64_t j = 0; j < 2600; ++j) {
        problem.w.set(j, 0, j < 2100 ? -50.0 : j < 2570 ? 50.0 : 100.0);
    }
    const Result exact = oracle(problem);
    for (const int64_t chunk_columns : {0, 512}) {
        const Result actual =
            run_shards(problem, {2600}, {.type = DType::bf16, .chunk_columns = chunk_columns})
                .result;
        EXPECT_LT(relative_error(actual.dx, exact.dx), 2e-3);
        EXPECT_LT(relative_error(actual.dw, exact.dw), 2e-3);
    }
}

/// A block per row for the pieces alone, other chunks, other algorithms: not here.
TEST_P(CudaVocabularyScore, SomeRowsHaveTheBitsOfAllOfThem) {
    const int64_t tokens = tokens_for_all_warps();
    const auto problem =
        random_problem(25, tokens, 40, 611, DType::bf16, 2, {.label_smoothing = 0.1F});
    for (const int64_t chunk_columns : {0, 256}) {
        ShardedRun run{.type = DType::bf16, .chunk_columns = chunk_columns};
        const ShardedOutputs whole = run_shards(problem, {311, 300}, run);
        run.piece_rows = 16;
        const ShardedOutputs pieces = run_shards(problem, {311, 300}, run);
        EXPECT_TRUE(pieces.statistics.same_bits(whole.statistics));
        for (size_t k = 0; k < 2; ++k) {
            EXPECT_TRUE(pieces.exp_logits[k].same_bits(whole.exp_logits[k]));
        }
    }
}

TEST_P(CudaVocabularyScore, RefusesAWorkspaceBelow256Columns) {
    const auto problem = random_problem(24, 4, 4, 600, DType::fp32, 1, {});
    EXPECT_THROW((void)run_shards(problem, {600}, {.chunk_columns = 255}), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaVocabularyScore,
                         testing::Combine(testing::ValuesIn(devices_under_test())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
