// SPDX-License-Identifier: Apache-2.0
// Predictions beside published runs on A100s. The table of docs/planning.md is this test's output.
#include "tests/plan/plan_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace vocabpipe::testing {
namespace {

struct Published {
    VocabMode mode = VocabMode::none;
    int gpus = 0;
    int64_t vocab = 0, hidden = 0, heads = 0;
    int layers = 0;
    double mfu = 0, iteration_ms = 0, peak_gib = 0;
};

std::vector<Published> published() {
    std::ifstream in(PUBLISHED_1F1B);
    std::vector<Published> rows;
    std::string line;
    while (std::getline(in, line)) {
        if (line.starts_with("#") || line.starts_with("vocab_mode")) continue;
        std::replace(line.begin(), line.end(), ',', ' ');
        std::istringstream cells(line);
        Published row;
        std::string mode;
        cells >> mode >> row.gpus >> row.vocab >> row.hidden >> row.heads >> row.layers >>
            row.mfu >> row.iteration_ms >> row.peak_gib;
        row.mode = vocab_mode_from(mode);
        rows.push_back(row);
    }
    return rows;
}

PlanRow predict(const Published& row) {
    PlanOptions options;
    options.device = load_device("a100");
    options.device.reserve_gib.value = 0;  // published are bytes allocated
    options.model = {.name = "gpt",
                     .num_layers = row.layers,
                     .hidden_size = row.hidden,
                     .ffn_hidden_size = 4 * row.hidden,
                     .num_attention_heads = row.heads,
                     .num_key_value_heads = row.heads,
                     .head_size = row.hidden / row.heads,
                     .vocab_size = row.vocab,
                     .learned_positions = 2048,
                     .layer_norm = true,
                     .linear_biases = true};
    options.gpus = row.gpus;
    options.seq_length = 2048;
    options.global_batch_size = 128;
    options.schedules = {"1f1b"};
    options.vocab_modes = {row.mode};
    options.sensitivity_rows = 0;
    return make_plan(options).rows.front();
}

TEST(PublishedRuns, ArePredictedFromSizesAlone) {
    const std::vector<Published> rows = published();
    ASSERT_EQ(rows.size(), 60U);
    std::printf(
        "| GPUs | vocab mode | V | published MFU %% | predicted | time, predicted / "
        "published | published GiB | predicted |\n|---|---|---|---|---|---|---|---|\n");
    for (const Published& row : rows) {
        const PlanRow planned = predict(row);
        const double ratio = static_cast<double>(planned.step_ns) * 1e-6 / row.iteration_ms;
        std::printf("| %d | %s | %lldk | %.2f | %.2f | %.3f | %.2f | %.2f |\n", row.gpus,
                    std::string(to_string(row.mode)).c_str(),
                    static_cast<long long>(row.vocab / 1000), row.mfu, row.mfu / ratio, ratio,
                    row.peak_gib, static_cast<double>(planned.worst.total()) / (1 << 30));
        // Whole layers: the published runs' unsharded loss takes less memory traffic per logit than
        // the sharded one that softmax_bytes_per_logit was measured on.
        const bool whole = row.mode == VocabMode::none || row.mode == VocabMode::redistributed;
        EXPECT_NEAR(ratio, 1.0, whole ? 0.15 : 0.05);
        EXPECT_NEAR(static_cast<double>(planned.worst.total()) / (1 << 30) / row.peak_gib, 1.0,
                    0.08);
    }
}

}  // namespace
}  // namespace vocabpipe::testing
