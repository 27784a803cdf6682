// SPDX-License-Identifier: Apache-2.0
// Dispatch and combine on whole numbers, which no order of sums and no wave changes, against plain
// loops over all tokens and experts.
#include "src/model/blocks/moe/team_exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "tests/model/teams_of_threads.hpp"
#include "vocabpipe/operators.hpp"

namespace vocabpipe::testing {
namespace {

constexpr int64_t kHidden = 64;

/// A team's tokens, weights of experts and choices, known to all.
struct Problem {
    TeamSizes sizes;
    std::vector<std::vector<float>> x, residual, weights;  ///< [member] (n, h), (n, h), (n, k)
    std::vector<std::vector<int32_t>> choices;             ///< [member] (n, k)
    std::vector<float> matrices;                           ///< (E h, h)

    Problem(const RoutingShape& shape, int panels, int favorites)
        : sizes{.shape = shape,
                .hidden_size = kHidden,
                .ffn_hidden_size = 1,
                .panels = panels,
                .dtype = DType::fp32} {
        std::mt19937 random(7);
        const auto whole = [&](int64_t count, int least, int most) {
            std::vector<float> values(static_cast<size_t>(count));
            for (float& v : values) {
                v = static_cast<float>(std::uniform_int_distribution(least, most)(random));
            }
            return values;
        };
        matrices = whole(shape.experts * kHidden * kHidden, -2, 2);
        // At least k; few of them: most rows go to few members.
        std::vector<int32_t> experts(static_cast<size_t>(favorites));
        std::iota(experts.begin(), experts.end(), 0);
        for (int member = 0; member < shape.members; ++member) {
            x.push_back(whole(shape.tokens * kHidden, -3, 3));
            residual.push_back(whole(shape.tokens * kHidden, -9, 9));
            weights.push_back(whole(shape.tokens * shape.per_token, 1, 4));
            std::vector<int32_t>& of_member = choices.emplace_back();
            for (int64_t n = 0; n < shape.tokens; ++n) {
                std::ranges::shuffle(experts, random);
                of_member.insert(of_member.end(), experts.begin(),
                                 experts.begin() + shape.per_token);
            }
        }
    }
    /// What a member's tokens become.
    [[nodiscard]] std::vector<float> expected(size_t member) const {
        std::vector<float> y = residual[member];
        const auto h = static_cast<size_t>(kHidden);
        for (size_t slot = 0; slot < choices[member].size(); ++slot) {
            const size_t n = slot / static_cast<size_t>(sizes.shape.per_token);
            const auto expert = static_cast<size_t>(choices[member][slot]);
            for (size_t o = 0; o < h; ++o) {
                float sum = 0;
                for (size_t i = 0; i < h; ++i) {
                    sum += x[member][n * h + i] * matrices[(expert * h + o) * h + i];
                }
                y[n * h + o] += weights[member][slot] * sum;
            }
        }
        return y;
    }
};

/// Memory and passes of one member.
class Member {
public:
    Member(const Problem& problem, TileLink& link)
        : p_(problem),
          link_(link),
          me_(static_cast<size_t>(link.rank())),
          ctx_({.threads = 1,
                .poll = [&link] { link.poll(); },
                .operators = &device_->operators()}) {}

    void run() {
        const RoutingShape& shape = p_.sizes.shape;
        Views counted;
        TeamMemory unused(counted, p_.sizes);
        const Poisoned workspace(*device_, counted.used());
        const Poisoned rows_memory(*device_, shape.budget * kHidden * 4);
        std::vector<float> x = p_.x[me_], out(x.size(), NAN);
        std::vector<float> dweights(p_.weights[me_].size(), NAN);
        std::vector<int32_t> lists(static_cast<size_t>(most_list_numbers(shape)));
        const RoutingPlan plan(shape, link_.rank(), routes());
        for (int number = 0; number < plan.waves(); ++number) {
            const RoutingWave planned = plan.wave(number);
            const PlacedWave wave = place_wave(ctx_, shape, planned, lists);
            Views views(workspace.bytes());
            const TeamMemory memory(views, p_.sizes);
            const TeamWave team{
                .pass = pass_, .sizes = p_.sizes, .wave = wave, .memory = memory, .name = "test"};
            const Tensor rows(rows_memory.bytes().data(), shape.budget, kHidden, DType::fp32);
            int64_t worked = 0;
            bool travelling = false;
            dispatch_tokens(
                team, tensor(x), [&] { travelling = true; }, rows,
                [&](std::span<const RowRange> some) {
                    for (const RowRange& of : some) worked += of.size();
                });
            EXPECT_TRUE(travelling);
            EXPECT_EQ(worked, wave.row_count());
            fill_weights(planned, memory);
            const auto make = [&](RowRange columns, Tensor panel) {
                pass_.op().grouped_linear_forward(ctx_, rows.row_range(0, wave.row_count()),
                                                  own_matrices(), wave.rows, columns.first, panel);
            };
            const Combination sum{
                .weights = memory.weights.row_range(0, wave.copy_count()),
                .residual = number == 0 ? ConstTensor(tensor(residual_)) : ConstTensor(tensor(out)),
                .out = tensor(out),
                .dweights = {dweights.data(), shape.tokens, shape.per_token, DType::fp32},
                .accumulate = number > 0};
            combine_at_home(team, make, sum, {});
        }
        EXPECT_EQ(out, p_.expected(me_));
        for (size_t slot = 0; slot < dweights.size(); ++slot) {
            EXPECT_EQ(dweights[slot], gradient(me_, slot));
        }
    }

private:
    [[nodiscard]] Tensor tensor(std::vector<float>& rows) const {
        return {rows.data(), std::ssize(rows) / kHidden, kHidden, DType::fp32};
    }
    [[nodiscard]] ConstTensor own_matrices() const {
        const int64_t rows = p_.sizes.shape.own_experts() * kHidden;
        return ConstTensor(p_.matrices.data(), p_.sizes.shape.experts * kHidden, kHidden,
                           DType::fp32)
            .row_range(link_.rank() * rows, rows);
    }
    /// The gradient of a slot of a member: some whole number.
    static float gradient(size_t member, size_t slot) {
        return static_cast<float>(1000 * member + slot + 1);
    }
    /// Exchanges choices and weights; checks that they are everybody's.
    std::vector<std::span<const int32_t>> routes() {
        const RoutingShape& shape = p_.sizes.shape;
        const auto slots = static_cast<size_t>(shape.tokens * shape.per_token);
        routes_.resize(2 * slots * p_.choices.size());
        gather_routes(
            pass_, {p_.choices[me_].data(), shape.tokens, shape.per_token, DType::fp32},
            {p_.weights[me_].data(), shape.tokens, shape.per_token, DType::fp32},
            {routes_.data(), 2 * shape.tokens * shape.members, shape.per_token, DType::fp32},
            "test");
        std::vector<std::span<const int32_t>> choices;
        for (size_t m = 0; m < p_.choices.size(); ++m) {
            choices.push_back(std::span(routes_).subspan(2 * slots * m, slots));
            EXPECT_TRUE(std::ranges::equal(choices.back(), p_.choices[m]));
        }
        return choices;
    }
    void fill_weights(const RoutingWave& wave, const TeamMemory& memory) const {
        const auto k = static_cast<size_t>(p_.sizes.shape.per_token);
        for (size_t slot = 0; slot < wave.row_of_slot.size(); ++slot) {
            const auto token = static_cast<size_t>(wave.token_of_copy[slot / k]);
            const auto tokens = static_cast<size_t>(p_.sizes.shape.tokens);
            const size_t member = token / tokens;
            const size_t of_member = token % tokens * k + slot % k;
            memory.weights.as<float>()[slot] = p_.weights[member][of_member];
            memory.dweights.as<float>()[slot] =
                wave.row_of_slot[slot] < 0 ? 0 : gradient(member, of_member);
        }
    }

    const Problem& p_;
    TileLink& link_;
    size_t me_;
    std::unique_ptr<Device> device_ = make_host_device();
    Context ctx_;
    Microbatch microbatch_;
    StagePass pass_{.ctx = ctx_, .microbatch = microbatch_, .experts = &link_};
    std::vector<float> residual_ = p_.residual[me_];
    std::vector<int32_t> routes_;
};

TEST(TeamExchange, OfWholeNumbersIsExactWithAnyTeamBudgetPiecesAndPanels) {
    for (const int members : {1, 2, 3, 4}) {
        for (const int favorites : {12, 3, 2}) {  // of twelve experts
            for (const double factor : {100.0, 1.0, 0.0}) {
                for (const auto& [pieces, panels] : {std::pair{1, 1}, {2, 2}}) {
                    SCOPED_TRACE(::testing::Message()
                                 << "e = " << members << " " << favorites << " experts, factor "
                                 << factor << " K = " << pieces << " P = " << panels);
                    RoutingShape shape{.members = members,
                                       .tokens = 90,
                                       .experts = 12,
                                       .per_token = 2,
                                       .budget = 0,
                                       .pieces = pieces};
                    shape.budget = row_budget(shape, factor);
                    const Problem problem(shape, panels, favorites);
                    const auto run = [&](int, TileLink* link) { Member(problem, *link).run(); };
                    on_serial_team(members, run);
                    on_linked_team(members, run);
                }
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
