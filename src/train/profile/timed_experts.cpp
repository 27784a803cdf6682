// SPDX-License-Identifier: Apache-2.0
#include "src/train/profile/timed_experts.hpp"

#include "src/model/blocks/moe/team_exchange.hpp"
#include "src/train/profile/timed_team.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

using Floats = std::vector<float>;

RoutingShape shape_of(int members, const OverlapCase& c, int pieces) {
    RoutingShape shape{.members = members,
                       .tokens = std::max<int64_t>(1, c.rows / c.per_token),
                       .experts = members * c.experts,
                       .per_token = c.per_token,
                       .budget = 0,
                       .pieces = pieces};
    shape.budget = shape.most_rows();
    return shape;
}

/// The probabilities of the experts, whose deviation is `std`.
std::vector<double> probabilities(int64_t experts, double std) {
    if (std < 0 || (std > 0 && std >= most_load_std(experts))) {
        throw UsageError("--load-std " + std::to_string(std) + ": must be at least 0 and below " +
                         std::to_string(most_load_std(experts)) + " for " +
                         std::to_string(experts) + " experts");
    }
    std::vector<double> result;
    for (int64_t expert = 0; expert < experts; ++expert) {
        const double even =
            experts == 1 ? 0
                         : 2 * static_cast<double>(expert) / static_cast<double>(experts - 1) -
                               1;  // -1 to 1
        const double most = std == 0 ? 0 : std / most_load_std(experts);
        result.push_back((1 + most * even) / static_cast<double>(experts));
    }
    return result;
}

/// The experts of every member's tokens, the same on every rank. Of several experts of a token none
/// is taken twice: the first are those that arrive first at rates in proportion to probabilities.
std::vector<std::vector<int32_t>> random_choices(const RoutingShape& shape, double std) {
    const std::vector<double> likely = probabilities(shape.experts, std);
    std::minstd_rand random(5);
    std::exponential_distribution<double> wait;
    std::vector<std::pair<double, int32_t>> arrivals(likely.size());
    std::vector<std::vector<int32_t>> choices(static_cast<size_t>(shape.members));
    for (std::vector<int32_t>& of_member : choices) {
        for (int64_t n = 0; n < shape.tokens; ++n) {
            for (size_t expert = 0; expert < likely.size(); ++expert) {
                arrivals[expert] = {wait(random) / likely[expert], static_cast<int32_t>(expert)};
            }
            const auto last = arrivals.begin() + static_cast<std::ptrdiff_t>(shape.per_token);
            std::ranges::partial_sort(arrivals, last);
            for (auto chosen = arrivals.begin(); chosen != last; ++chosen) {
                of_member.push_back(chosen->second);
            }
        }
    }
    return choices;
}

/// The operation on one rank.
class ExpertTeam {
public:
    ExpertTeam(Communicator& world, Device& device, const OverlapCase& c)
        : world_(world),
          case_(c),
          context_(device.context(1,
                                  [this] {
                                      if (link_ != nullptr) link_->poll();
                                  })),
          by_pieces_(*this, combines() ? 1 : c.pieces, combines() ? c.pieces : 1),
          whole_(*this, 1, 1) {
        const RoutingShape& shape = whole_.sizes.shape;
        weight_ = random_floats(c.experts * c.columns * c.inner, world.rank());
        rows_ = random_floats(shape.budget * c.inner, 1000 + world.rank());
        product_.resize(static_cast<size_t>(shape.budget * c.columns));
        own_ = random_floats(shape.tokens * hidden(), 2000 + world.rank());
        out_.resize(own_.size());
    }

    void use(TileLink& link) { link_ = &link; }
    /// Bytes that this rank receives.
    [[nodiscard]] int64_t received_bytes() const {
        const PlacedWave& wave = whole_.wave;
        const auto me = static_cast<size_t>(world_.rank());
        int64_t copies = wave.copy_count() - wave.copies[me].size();
        if (combines()) {
            copies = 0;
            for (size_t member = 0; member < wave.tokens.size(); ++member) {
                if (member != me) copies += std::ssize(wave.tokens[member]);
            }
        }
        return copies * hidden() * int64_t{sizeof(float)};
    }

    void compute() { multiply(whole_.wave.rows, {0, case_.columns}); }
    void exchange() { run(whole_, false); }
    void blocking() {
        if (combines()) return run(whole_, true);
        exchange();
        compute();
    }
    void overlapped() { run(by_pieces_, true); }

    [[nodiscard]] const Floats& result() const { return combines() ? out_ : product_; }
    void poison() {
        constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
        std::ranges::fill(out_, kNan);
        if (combines()) return;
        std::ranges::fill(rows_, kNan);
        for (const RowRange rows : whole_.wave.rows) {  // the rest of the memory is never written
            std::fill_n(product_.begin() + rows.first * case_.columns, rows.size() * case_.columns,
                        kNan);
        }
    }

private:
    /// A plan, and the memory that it needs.
    struct Planned {
        Planned(ExpertTeam& team, int pieces, int panels)
            : sizes{.shape = shape_of(team.world_.size(), team.case_, pieces),
                    .hidden_size = team.hidden(),
                    .ffn_hidden_size = 1,
                    .panels = panels,
                    .dtype = DType::fp32},
              lists(static_cast<size_t>(most_list_numbers(sizes.shape))),
              wave(place(team)),
              memory(counted, sizes) {
            bytes.resize(static_cast<size_t>(counted.used()));
            Views views{Bytes(bytes)};
            memory = TeamMemory(views, sizes);
            std::fill_n(memory.weights.as<float>(), memory.weights.size(), 0.5F);
        }
        PlacedWave place(ExpertTeam& team) {
            const std::vector<std::vector<int32_t>> choices =
                random_choices(sizes.shape, team.case_.load_std);
            const RoutingPlan plan(sizes.shape, team.world_.rank(),
                                   {choices.begin(), choices.end()});
            return place_wave(team.context_, sizes.shape, plan.wave(0), lists);
        }
        TeamSizes sizes;
        std::vector<int32_t> lists;
        PlacedWave wave;
        Views counted;
        std::vector<std::byte> bytes;
        TeamMemory memory;
    };

    [[nodiscard]] bool combines() const { return case_.op == OverlapOp::gemm_combine; }
    [[nodiscard]] int64_t hidden() const { return combines() ? case_.columns : case_.inner; }
    [[nodiscard]] Tensor tensor(Floats& of, int64_t cols) const {
        return {of.data(), std::ssize(of) / cols, cols, DType::fp32};
    }
    void multiply(std::span<const RowRange> rows, RowRange columns) {
        multiply(rows, columns, tensor(product_, case_.columns));
    }
    void multiply(std::span<const RowRange> rows, RowRange columns, Tensor product) {
        context_.operators().grouped_linear_forward(
            context_, tensor(rows_, case_.inner).row_range(0, product.rows),
            tensor(weight_, case_.inner), rows, columns.first, product);
    }
    void run(const Planned& plan, bool with_products) {
        const StagePass pass{.ctx = context_, .microbatch = microbatch_, .experts = link_};
        const TeamWave team{.pass = pass,
                            .sizes = plan.sizes,
                            .wave = plan.wave,
                            .memory = plan.memory,
                            .name = "a benchmark"};
        if (combines()) {
            combine_at_home(team,
                            [&](RowRange columns, Tensor panel) {
                                if (with_products) multiply(plan.wave.rows, columns, panel);
                            },
                            {.weights = plan.memory.weights.row_range(0, plan.wave.copy_count()),
                             .out = tensor(out_, hidden())},
                            {});
            return;
        }
        const WorkOnRows work = [&](std::span<const RowRange> rows) {
            multiply(rows, {0, case_.columns});
        };
        dispatch_tokens(team, tensor(own_, hidden()), {}, tensor(rows_, hidden()),
                        with_products ? work : WorkOnRows());
    }

    Communicator& world_;
    OverlapCase case_;
    TileLink* link_ = nullptr;
    Context context_;
    Microbatch microbatch_;
    Planned by_pieces_, whole_;
    Floats weight_, rows_, product_, own_, out_;
};

}  // namespace

OverlapTiming time_experts(Communicator& world, Device& device, TileLink& link,
                           const OverlapCase& c) {
    return time_team<ExpertTeam>(world, device, link, c);
}

ExpertLoads expert_loads(int members, const OverlapCase& c) {
    const RoutingShape shape = shape_of(members, c, 1);
    std::vector<double> of_expert(static_cast<size_t>(shape.experts), 0);
    std::vector<double> of_member(static_cast<size_t>(members), 0);
    const auto all = static_cast<double>(shape.members * shape.tokens * shape.per_token);
    for (const std::vector<int32_t>& choices : random_choices(shape, c.load_std)) {
        for (const int32_t expert : choices) {
            of_expert[static_cast<size_t>(expert)] += 1 / all;
            of_member[static_cast<size_t>(expert / c.experts)] += members / all;
        }
    }
    const double mean = 1 / static_cast<double>(shape.experts);
    double squares = 0;
    for (const double share : of_expert) squares += (share - mean) * (share - mean);
    return {.std = std::sqrt(squares * mean), .fullest = std::ranges::max(of_member)};
}

double most_load_std(int64_t experts) {
    const auto count = static_cast<double>(experts);
    return std::sqrt((count + 1) / (3 * std::max(count - 1, 1.0))) / count;
}

}  // namespace vocabpipe
