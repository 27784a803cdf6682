// SPDX-License-Identifier: Apache-2.0
// Ranks that share the experts of a layer make what one rank with all experts makes, within
// rounding; and to the bit what they make without pieces and panels, meeting at barriers
// (serial_team.hpp). What their memory is does not depend on what tokens choose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <tuple>

#include "tests/model/expert_run.hpp"
#include "tests/model/teams_of_threads.hpp"
#include "tests/model/tensor_models.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// |a - b| / |a| in the Frobenius norm.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
    double norm = 0, apart = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        norm += static_cast<double>(a[i]) * a[i];
        apart += std::pow(static_cast<double>(a[i]) - b[i], 2);
    }
    return norm == 0 ? std::sqrt(apart) : std::sqrt(apart / norm);  // NaN fails comparisons
}

/// Both runs round fewer than 20 tensors from x to the last gradient, and these add up as their
/// squares do; the rest is for sums in fp32.
double bound(DType type) {
    return type == DType::bf16 ? 10 * 0x1p-8 : 50 * 0x1p-24;
}

void expect_near(const std::vector<ExpertResults>& members, const ExpertResults& alone,
                 DType type) {
    const ExpertResults together = put_together(members);
    ASSERT_EQ(together.y.size(), alone.y.size());
    for (size_t i = 0; i < alone.y.size(); ++i) {
        EXPECT_LT(difference(alone.y[i], together.y[i]), bound(type)) << "y " << i;
        EXPECT_LT(difference(alone.dx[i], together.dx[i]), bound(type)) << "dx " << i;
    }
    ASSERT_EQ(together.gradients.size(), alone.gradients.size());
    for (const auto& [name, gradient] : alone.gradients) {
        ASSERT_EQ(together.gradients.at(name).size(), gradient.size()) << name;
        EXPECT_LT(difference(gradient, together.gradients.at(name)), bound(type)) << name;
    }
}

/// Eight experts, 64 columns.
ModelConfig for_four_members(ModelConfig config) {
    config.hidden_size = 64;
    config.moe.experts = 8;
    config.moe.top_k = 3;
    config.moe.aux_loss = 0.1F;
    config.moe.z_loss = 0.01F;
    if (config.moe.correction_bias) {
        config.moe.groups = 4;
        config.moe.top_groups = 2;
    }
    return config;
}

struct ExpertCase {
    std::string name;
    ModelConfig config;
    friend void PrintTo(const ExpertCase& c, std::ostream* out) { *out << c.name; }
};

std::vector<ExpertCase> expert_cases() {
    std::vector<ExpertCase> cases;
    for (const ModelConfig& config : expert_models()) {
        cases.push_back({.name = config.family, .config = for_four_members(config)});
    }
    return cases;
}

ModelConfig mixtral() {
    return expert_cases().front().config;
}

class ExpertTeams : public ::testing::TestWithParam<ExpertCase> {};

TEST_P(ExpertTeams, MakeWhatOneRankMakesAndTheBitsOfTheSerialTeam) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
            ExpertRun run{.config = GetParam().config, .tokens = 40, .recompute = recompute};
            run.config.dtype = dtype;
            for (run.ranks = 2; run.ranks <= 4; run.ranks *= 2) {
                const ExpertResults alone = run_alone(run);
                for (run.split = false;; run.split = true) {
                    SCOPED_TRACE(::testing::Message()
                                 << (dtype == DType::bf16 ? "bf16" : "fp32") << " "
                                 << static_cast<int>(recompute) << " e = " << run.ranks
                                 << (run.split ? " split" : ""));
                    const std::vector<ExpertResults> serial = run_serially(run);
                    expect_near(serial, alone, dtype);
                    EXPECT_TRUE(run_with_links(run) == serial);
                    if (run.split) break;
                }
            }
        }
    }
}

/// x ranks share each expert: all of them the same ones, or several groups; or more ranks than
/// there are experts.
TEST_P(ExpertTeams, MakeWhatOneRankMakesWhereRanksShareAnExpert) {
    struct Sizes {
        int ranks, expert_tensor, experts;
    };
    for (const Sizes& sizes : {Sizes{2, 2, 8}, {4, 2, 8}, {4, 4, 8}, {8, 4, 4}}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            for (const bool split : {false, true}) {
                SCOPED_TRACE(::testing::Message()
                             << (dtype == DType::bf16 ? "bf16" : "fp32") << " ranks " << sizes.ranks
                             << " x = " << sizes.expert_tensor << (split ? " split" : ""));
                ExpertRun run{.config = GetParam().config,
                              .tokens = 40,
                              .ranks = sizes.ranks,
                              .expert_tensor = sizes.expert_tensor,
                              .recompute = split ? Recompute::none : Recompute::selective,
                              .split = split};
                run.config.dtype = dtype;
                run.config.moe.experts = sizes.experts;
                run.config.moe.groups = std::min<int64_t>(run.config.moe.groups, sizes.experts / 2);
                const std::vector<ExpertResults> serial = run_serially(run);
                expect_near(serial, run_alone(run), dtype);
                EXPECT_TRUE(run_with_links(run) == serial);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertTeams, ::testing::ValuesIn(expert_cases()),
                         [](const auto& info) { return info.param.name; });

/// Makes the same bits again and again, also split in two, with pieces and panels of any number.
void expect_these_bits(ExpertRun run, const std::vector<ExpertResults>& bits) {
    for (const auto& [pieces, panels, split] :
         {std::tuple{4, 1, true}, {1, 2, false}, {3, 2, true}, {3, 2, false}}) {
        SCOPED_TRACE(::testing::Message()
                     << "K = " << pieces << " P = " << panels << (split ? " split" : ""));
        run.pieces = pieces;
        run.panels = panels;
        run.split = split;
        const std::vector<ExpertResults> members = run_with_links(run);
        for (size_t m = 0; m < bits.size(); ++m) {
            EXPECT_TRUE(members[m].y == bits[m].y);
            EXPECT_TRUE(members[m].dx == bits[m].dx);
            EXPECT_TRUE(members[m].gradients == bits[m].gradients);
        }
    }
}

TEST(ExpertPieces, ChangeNoBit) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        ExpertRun run{.config = mixtral(), .tokens = 200};
        run.config.dtype = dtype;
        for (run.ranks = 2; run.ranks <= 4; run.ranks *= 2) {
            SCOPED_TRACE(::testing::Message() << "e = " << run.ranks);
            run.expert_tensor = 1;
            expect_these_bits(run, run_serially(run));
            run.expert_tensor = 2;
            expect_these_bits(run, run_serially(run));
        }
    }
}

/// However tokens choose, memory is as planned; what exceeds it takes more waves.
TEST(ExpertWaves, TakeAllTokensToOneExpertThroughTheSameMemory) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (const int ranks : {2, 4}) {
            for (const double factor : {1.25, 0.0}) {  // 0: one tile
                SCOPED_TRACE(::testing::Message() << "e = " << ranks << " factor " << factor);
                ExpertRun run{.config = mixtral(),
                              .tokens = 150,
                              .ranks = ranks,
                              .row_factor = factor,
                              .recompute = Recompute::selective};
                run.config.dtype = dtype;
                const ExpertBytes planned = run_serially(run).front().bytes;
                run.favorites = {{5, 100.0F}, {4, 90.0F}};  // of one member, all tokens
                const std::vector<ExpertResults> serial = run_serially(run);
                for (const ExpertResults& member : serial) EXPECT_EQ(member.bytes, planned);
                expect_near(serial, run_alone(run), dtype);
                expect_these_bits(run, serial);
            }
        }
    }
}

TEST(ExpertWaves, TakeAllTokensToOneExpertThatRanksShare) {
    for (const int x : {2, 4}) {
        ExpertRun run{.config = mixtral(),
                      .tokens = 150,
                      .ranks = 4,
                      .expert_tensor = x,
                      .row_factor = 0,  // one tile
                      .recompute = Recompute::selective};
        const ExpertBytes planned = run_serially(run).front().bytes;
        run.favorites = {{5, 100.0F}, {4, 90.0F}};
        const std::vector<ExpertResults> serial = run_serially(run);
        for (const ExpertResults& member : serial) EXPECT_EQ(member.bytes, planned);
        expect_near(serial, run_alone(run), DType::fp32);
        expect_these_bits(run, serial);
    }
}

TEST(ExpertWaves, LeaveExpertsWithoutTokens) {
    ExpertRun run{.config = mixtral(), .tokens = 60, .ranks = 4};
    run.favorites = {{0, -100.0F}, {1, -100.0F}, {6, -100.0F}};  // both of member 0
    const std::vector<ExpertResults> serial = run_serially(run);
    expect_near(serial, run_alone(run), DType::fp32);
    expect_these_bits(run, serial);
}

TEST(ExpertWaves, OfOneTileHaveTheSizeOfATile) {
    ExpertRun run{.config = mixtral(), .tokens = 1000, .ranks = 2, .row_factor = 0};
    const ExpertBytes tile = run_serially(run).front().bytes;
    run.row_factor = 1.25;
    const ExpertBytes rows = run_serially(run).front().bytes;
    const int64_t row = (64 + 3 * 48) * size_of(DType::fp32);
    const int64_t list_numbers = (2000 - 128) * (1 + 3) + (3750 - 128);  // of copies, of rows
    const int64_t more = (3750 - 128) * row + list_numbers * 4;
    EXPECT_NEAR(static_cast<double>(rows.saved - tile.saved), static_cast<double>(more), 64);
    EXPECT_EQ(rows.gradients - tile.gradients, (3750 - 128) * (64 + 2 * 48) * 4);
    EXPECT_GT(rows.scratch, tile.scratch);
}

TEST(ExpertTeam, NamesTheExchangeWhoseMemberDoesNotCome) {
    const ExpertRun run{.config = mixtral(), .tokens = 40, .ranks = 2};
    try {
        World::threads(2, {.timeout_seconds = 0.3}).run([&](Communicator& c) {
            if (c.rank() == 1) return;
            const auto link =
                make_host_tile_link(c.transport(), c.wait_options(), {.ranks = {0, 1}, .poll = {}});
            static_cast<void>(run_member(run, *link));
        });
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("rank 0: choices for model.layers.1.block_sparse"),
                          HasSubstr("waits for piece 0 of member 1 (rank 1)")));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
