// SPDX-License-Identifier: Apache-2.0
// The two largest logits on the device, as tests/kernels/top_two_test.cpp has them for the host.
#include "tests/kernels/top_two_problem.hpp"

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"

#include <string>

namespace vocabpipe::kernels::test {
namespace {

class TopTwoOnDevice : public OnDevice {};

struct FoundOnDevice {
    Matrix statistics;
    std::vector<float> losses;
};

FoundOnDevice score_on_device(const Problem& problem, const std::vector<int64_t>& shard_rows,
                              int64_t chunk_columns) {
    Device device;
    Context& ctx = device.context();
    const int64_t tokens = problem.tokens();
    const DeviceMatrix x(device, problem.x);
    const DeviceArray<int32_t> labels(device, problem.labels);
    const DeviceArray<float> g(device, problem.g);
    const DeviceMatrix statistics(device,
                                  Matrix(static_cast<int64_t>(shard_rows.size()) * tokens,
                                         statistics_columns(problem.options), DType::fp32, 3));
    std::vector<VocabularyShard> shards;
    int64_t first = 0;
    for (size_t k = 0; k < shard_rows.size(); ++k) {
        const int64_t rows = shard_rows[k];
        shards.push_back({.first_row = first, .rows = rows, .vocab_size = problem.vocab()});
        const DeviceMatrix w(device, rows_of(problem.w, first, rows, 3));
        const DeviceMatrix exp_logits(device, Matrix(tokens, rows, problem.x.type(), 3));
        const int64_t asked =
            cuda::vocabulary_score_workspace_bytes(tokens, rows, problem.x.type());
        const DeviceBytes space(static_cast<size_t>(
            chunk_columns > 0 ? std::min(asked, tokens * chunk_columns * 4) : asked));
        cuda::vocabulary_score(
            ctx, x, w, labels, shards.back(), problem.options, exp_logits,
            statistics.view().row_range(static_cast<int64_t>(k) * tokens, tokens), space);
        device.finish();
        first += rows;
    }
    FoundOnDevice found{statistics.download(), {}};
    EXPECT_TRUE(found.statistics.gaps_are_intact());
    for (size_t k = 0; k < shards.size(); ++k) {
        const DeviceArray<float> losses(
            device, std::vector<float>(
                        static_cast<size_t>(problem.options.top_two ? 2 * tokens : tokens), NAN));
        cuda::combine_statistics(ctx, statistics, labels, g, shards[k], static_cast<int>(k),
                                 problem.options, {}, losses);
        device.finish();
        const std::vector<float> here = losses.download();
        if (k > 0) {
            EXPECT_EQ(here, found.losses) << "the same bits on every rank";
        }
        found.losses = here;
    }
    return found;
}

TEST_F(TopTwoOnDevice, AreThoseOfSortedLogits) {
    for (size_t i = 0; i < top_two_cases().size(); ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const TopTwoCase& c = top_two_cases()[i];
        int64_t vocab = 0;
        for (const int64_t rows : c.shard_rows) vocab += rows;
        Problem problem = exact_problem(i, c.tokens, 12, vocab, c.type, c.levels, c.softcap);
        const FoundOnDevice found = score_on_device(problem, c.shard_rows, vocab > 1000 ? 256 : 0);
        expect_top_two(problem, c.shard_rows, found.statistics, found.losses);
        problem.options.top_two = false;
        const FoundOnDevice plain = score_on_device(problem, c.shard_rows, vocab > 1000 ? 256 : 0);
        for (int64_t row = 0; row < plain.statistics.rows(); ++row) {
            for (int64_t col = 0; col < kStatistics; ++col) {
                EXPECT_EQ(plain.statistics.get(row, col), found.statistics.get(row, col));
            }
        }
        for (size_t n = 0; n < plain.losses.size(); ++n) {
            EXPECT_EQ(plain.losses[n], found.losses[n]);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
