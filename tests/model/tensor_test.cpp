// SPDX-License-Identifier: Apache-2.0
// Ranks that share stages (tensor parallelism) make what one rank alone makes, within rounding; and
// to the bit what they make without pieces, meeting at barriers (serial_team.hpp).
#include "tests/model/tensor_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "src/model/families/families.hpp"
#include "tests/model/model_cases.hpp"

namespace vocabpipe::testing {
namespace {

struct TensorCase {
    std::string name;
    ModelConfig config;
    bool documents = false;
    friend void PrintTo(const TensorCase& c, std::ostream* out) { *out << c.name; }
};

/// Sizes that four ranks can share.
ModelConfig for_four_ranks(std::string_view family) {
    ModelConfig config = small_family(family, 3, 8, 29, false);
    config.hidden_size = 32;
    config.ffn_hidden_size = 72;
    const bool grouped = config.num_query_groups > 0;
    config.num_attention_heads = grouped ? 8 : 4;
    if (grouped) config.num_query_groups = 4;
    return config;
}

std::vector<TensorCase> tensor_cases() {
    std::vector<TensorCase> cases;
    for (const ModelFamily& family : all_families()) {
        const ModelConfig config = for_four_ranks(family.name);
        if (config.moe.experts > 0) continue;
        cases.push_back({.name = std::string(family.name), .config = config});
    }
    ModelConfig llama = for_four_ranks("llama");
    llama.qkv_bias = llama.attention_output_bias = llama.mlp_bias = true;
    cases.push_back({.name = "llama_biases_documents", .config = llama, .documents = true});
    ModelConfig depths = for_four_ranks("llama");
    depths.mtp_num_layers = 2;
    cases.push_back({.name = "llama_two_depths", .config = depths});
    ModelConfig neox = for_four_ranks("gpt_neox");
    neox.parallel_residual = false;
    cases.push_back({.name = "gpt_neox_in_a_row_documents", .config = neox, .documents = true});
    return cases;
}

/// |a - b| / |a| in the Frobenius norm.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
    double norm = 0, apart = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        norm += a[i] * a[i];
        apart += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return std::sqrt(apart) / std::sqrt(norm);  // NaN fails every comparison below
}

/// Between two runs that round the same numbers differently. From x to the last dx there are about
/// 40 tensors, forwards and backwards, each rounded to the run's type on either side, and their
/// errors add up as their squares do; what is left of the factor is for sums in fp32, which err by
/// more than one rounding each, and in bf16 hardly count.
double bound(DType type) {
    return type == DType::bf16 ? 25 * 0x1p-8 : 100 * 0x1p-24;
}

class TensorTeams : public ::testing::TestWithParam<TensorCase> {};

TEST_P(TensorTeams, MakeWhatOneRankMakesAndTheBitsOfTheSerialTeam) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
            TensorRun run{.config = GetParam().config,
                          .sequences = 3,  // the rows of four ranks begin within sequences
                          .recompute = recompute,
                          .documents = GetParam().documents};
            run.config.dtype = dtype;
            const WholeResults alone = put_together(run, {run_rank(run, 0, nullptr)});
            for (run.ranks = 2; run.ranks <= 4; run.ranks *= 2) {
                for (run.split = false;; run.split = true) {
                    SCOPED_TRACE(::testing::Message()
                                 << static_cast<int>(dtype) << " " << static_cast<int>(recompute)
                                 << " t = " << run.ranks << (run.split ? " split" : ""));
                    const std::vector<RankResults> serial = run_serially(run);
                    const WholeResults together = put_together(run, serial);
                    ASSERT_EQ(together.names, alone.names);
                    for (size_t i = 0; i < alone.names.size(); ++i) {
                        EXPECT_LT(difference(alone.values[i], together.values[i]), bound(dtype))
                            << alone.names[i];
                    }
                    EXPECT_TRUE(run_with_links(run) == serial);
                    if (run.split) break;
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorTeams, ::testing::ValuesIn(tensor_cases()),
                         [](const auto& info) { return info.param.name; });

/// Rows enough for four pieces of each of four members.
TEST(TensorPieces, ChangeNoBit) {
    for (const std::string_view family : {"gpt2", "gemma2", "qwen3"}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            TensorRun run{.config = for_four_ranks(family), .sequences = 6};
            run.config.dtype = dtype;
            run.config.seq_length = run.config.max_position_embeddings = 88;
            run.config.num_layers = 2;
            for (run.ranks = 2; run.ranks <= 4; run.ranks *= 2) {
                run.pieces = 1;
                const std::vector<RankResults> serial = run_serially(run);
                for (const int pieces : {1, 2, 4}) {
                    for (run.split = false;; run.split = true) {
                        SCOPED_TRACE(::testing::Message() << family << " t = " << run.ranks
                                                          << " K = " << pieces << run.split);
                        run.pieces = pieces;
                        EXPECT_TRUE(run_with_links(run) == serial);
                        if (run.split) break;
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
