// SPDX-License-Identifier: Apache-2.0
// Under mpirun: loss and every gradient of the processes' run equal those of the single-rank oracle
// bit for bit, and so those of a world of threads.
#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/generate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <set>

namespace vocabpipe::testing {
namespace {

struct Case {
    const char* family;
    VocabMode mode;
    friend void PrintTo(const Case& c, std::ostream* out) {
        *out << c.family << " " << to_string(c.mode);
    }
};

/// One run.
struct Variant {
    int microbatches;
    int64_t vocab_size;
    DType dtype;
    bool tied;
};

/// Up to 4 ranks the product of all values; for more, where a run costs more, every pair of a
/// microbatch count and a vocabulary size (VOCABPIPE_FULL=1: the product).
std::vector<Variant> variants(int p) {
    std::set<int> counts{1, 2, p - 1, p, 2 * p + 1};
    counts.erase(0);
    const bool product = p <= 4 || std::getenv("VOCABPIPE_FULL") != nullptr;
    std::vector<Variant> all;
    size_t turn = 0;
    for (const int m : counts) {
        // Divisible by 2, 3, 4 and 8; by none of them; fewer rows than ranks.
        for (const int64_t v : {48, 53, 3}) {
            for (const bool tied : {false, true}) {
                for (const DType dtype : {DType::fp32, DType::bf16}) {
                    if (product || turn % 4 == (turn / 4 * 3) % 4)
                        all.push_back({m, v, dtype, tied});
                    ++turn;
                }
            }
        }
    }
    return all;
}

GptConfig small(int ranks, const Variant& v, int64_t hidden_size) {
    GptConfig config;
    config.num_layers = std::max(2, ranks);
    config.hidden_size = hidden_size;
    config.ffn_hidden_size = 2 * hidden_size;
    config.num_attention_heads = 2;
    config.seq_length = config.max_position_embeddings = 6;
    config.vocab_size = v.vocab_size;
    config.dtype = v.dtype;
    config.tied = v.tied;
    config.init_std = 0.3F;  // gradients of every tensor well away from zero
    return config;
}

class MpiEquality : public ::testing::TestWithParam<Case> {
protected:
    void expect_equality(const std::vector<Variant>& all, int64_t hidden_size) {
        const int p = world_.size();
        const auto& [family, mode] = GetParam();
        struct Setup {
            GptConfig config;
            Schedule schedule;
            GptPartition partition;
            Batch batch;
        };
        const auto setup_of = [&](const Variant& v) {
            Setup s;
            s.config = small(p, v, hidden_size);
            s.schedule = generate(family, {.ranks = p,
                                           .microbatches = v.microbatches,
                                           .vocab_mode = mode,
                                           .vocab_size = v.vocab_size});
            s.partition = even_partition(s.config, s.schedule, 2);
            s.batch =
                random_batch(s.config, v.microbatches, 2, static_cast<uint32_t>(v.microbatches));
            return s;
        };
        std::vector<Gradients> actual;
        for (const Variant& v : all) {
            const Setup s = setup_of(v);
            actual.push_back(run_pipeline(world_, s.config, s.partition, s.schedule, s.batch, 7));
        }
        // All ranks hold all results; each checks a part of them.
        int rank = 0;
        world_.run([&](Communicator& c) { rank = c.rank(); });
        for (size_t i = static_cast<size_t>(rank); i < all.size(); i += static_cast<size_t>(p)) {
            const Setup s = setup_of(all[i]);
            const Gradients expected =
                run_single_rank(s.config, s.partition, s.schedule, s.batch, 7);
            ASSERT_EQ(first_difference(expected, actual[i]), "")
                << family << " " << to_string(mode) << " p=" << p << " m=" << all[i].microbatches
                << " V=" << all[i].vocab_size << (all[i].dtype == DType::bf16 ? " bf16" : " fp32")
                << (all[i].tied ? " tied" : " untied");
            expect_something_to_compare(expected, all[i].microbatches);
        }
    }

    World world_ = World::mpi({.timeout_seconds = 30});

private:
    /// Losses and gradients that are 0 or NaN everywhere would be equal, too.
    static void expect_something_to_compare(const Gradients& g, int microbatches) {
        ASSERT_EQ(g.losses.size(), static_cast<size_t>(microbatches));
        for (const double loss : g.losses) EXPECT_TRUE(std::isfinite(loss));
        for (const auto& [name, values] : g.by_name) {
            double squares = 0;
            for (const float v : values) squares += static_cast<double>(v) * v;
            EXPECT_TRUE(std::isfinite(squares) && squares > 0) << name;
        }
    }
};

TEST_P(MpiEquality, LossAndGradientsHaveTheBitsOfTheSingleRankOracle) {
    expect_equality(variants(world_.size()), 16);
}

TEST_P(MpiEquality, AndSoWithMessagesTooLongToBeSentBeforeTheirReceive) {
    const int p = world_.size();
    // 12 tokens of 256 values: 12 KiB in fp32, 6 KiB in bf16; Open MPI sends at most 4 KiB eagerly
    // on one host.
    expect_equality({{p + 1, 53, DType::fp32, false}, {p, 48, DType::bf16, true}}, 256);
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const char* family : {"1f1b", "gpipe"}) {
        for (const VocabMode mode :
             {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
              VocabMode::one_barrier, VocabMode::two_barriers}) {
            all.push_back({family, mode});
        }
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiEquality, ::testing::ValuesIn(cases()), [](const auto& info) {
    return (std::string(info.param.family) == "1f1b" ? "OneFOneB_" : "GPipe_") +
           std::string(to_string(info.param.mode));
});

}  // namespace
}  // namespace vocabpipe::testing
