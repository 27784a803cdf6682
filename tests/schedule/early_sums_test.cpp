// SPDX-License-Identifier: Apache-2.0
// What the sum of the input gradient could gain if more of it began early: with one barrier beside
// the statistics (C1), with two barriers by pieces as T makes its rows. Neither is built; costs
// stand for it that are at least as good (docs/overlap.md, "Sums that begin earlier").
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// A GPT of the published runs (arXiv 2411.05288v2), bf16, microbatches of one sequence.
struct SummedModel {
    int ranks = 8;
    int64_t tokens = 2048;
    int64_t hidden = 3072;
    int layers = 32;
    int64_t vocab = 0;

    [[nodiscard]] int64_t partial_bytes() const { return tokens * hidden * 4; }
};

constexpr int kSumPieces = 8;

/// Costs under which the sum begins earlier than in the programs.
class EarlySum final : public CostModel {
public:
    struct Change {
        bool beside_statistics = false;  ///< C1 and the scaling of u take no time
        double bytes = 1;                ///< that the partial sums have, against today
        int64_t product_ns = 0;          ///< within which they are made by pieces; 0: at once
    };
    EarlySum(const TableCosts& costs, int64_t partial_bytes, Change change)
        : costs_(costs), partial_bytes_(partial_bytes), change_(change) {}

    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override {
        return costs_.pass_ns(rank, pass);
    }
    [[nodiscard]] int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override {
        if (what == Do::all_gather && change_.beside_statistics) return 0;
        // The sum of embedded rows has another size.
        if (what != Do::all_to_all || bytes != partial_bytes_) {
            return costs_.transfer_ns(what, group, bytes);
        }
        const int64_t whole = costs_.transfer_ns(
            what, group, std::llround(static_cast<double>(bytes) * change_.bytes));
        if (change_.product_ns == 0) return whole;
        return std::max(whole / kSumPieces,
                        whole - change_.product_ns * (kSumPieces - 1) / kSumPieces);
    }
    [[nodiscard]] int64_t local_ns(Do what, int64_t bytes) const override {
        if (what == Do::combine_softmax && change_.beside_statistics) return 0;
        return costs_.local_ns(what, bytes);
    }
    [[nodiscard]] StreamedShare streamed_share(int rank, const Pass& pass) const override {
        return costs_.streamed_share(rank, pass);
    }

private:
    const TableCosts& costs_;
    const int64_t partial_bytes_;
    const Change change_;
};

/// A family's schedule of a model on GPUs of 140 TFLOP/s. `link_gb_per_s` of 0: the exchange of
/// partial sums takes as long as a rank's forward.
class SummedStep {
public:
    SummedStep(const char* family, VocabMode mode, const SummedModel& model, double link_gb_per_s)
        : model_(model), family_(family) {
        options_ = {.ranks = model.ranks,
                    .microbatches = 4 * model.ranks,
                    .vocab_mode = mode,
                    .vocab_size = model.vocab};
        const Schedule placement = placement_of(family, options_);
        const double n = static_cast<double>(model.tokens);
        const double h = static_cast<double>(model.hidden);
        const double layers = static_cast<double>(model.layers) / placement.stages;
        const double forward = layers * (24 * n * h * h + 2 * n * n * h) / kFlopsPerNs;
        costs_ = TableCosts::uniform(model.ranks, placement.stages, std::llround(forward),
                                     2 * std::llround(forward), 0);
        const double rows = static_cast<double>(model.vocab) / model.ranks;
        const double product = 2 * n * h * rows / kFlopsPerNs;
        const double softmax = 8 * n * rows / kLocalBytesPerNs;
        const bool one = mode == VocabMode::one_barrier;
        product_ns_ = std::llround(product);
        for (TableCosts::OpCosts& costs : costs_.rank_ns) {
            const auto set = [&](Op op, double ns) {
                costs[static_cast<size_t>(op)] = std::llround(ns);
            };
            set(Op::S, (one ? 2 : 1) * product + softmax * 2 / 3);
            set(Op::T, (one ? 1 : 2) * product + softmax / 3);
            set(Op::E, 4 * n * h / kLocalBytesPerNs);
            set(Op::G, 10 * n * h / kLocalBytesPerNs);
        }
        costs_.latency_ns = 10'000;
        costs_.local_bytes_per_ns = kLocalBytesPerNs;
        costs_.layers_per_stage = layers;
        const double of_rank = forward * placement.stages / model.ranks;
        costs_.bytes_per_ns = link_gb_per_s > 0
                                  ? link_gb_per_s
                                  : static_cast<double>(model.partial_bytes()) / of_rank;
        sizes_ = {.tokens = model.tokens, .hidden = model.hidden, .dtype = DType::bf16};
        sizes_.stages.resize(static_cast<size_t>(placement.stages), {.saved = 64});
        sizes_.shards.resize(static_cast<size_t>(model.ranks), {.exp_logits = 64});
        add_schedule(EarlySum(costs_, model.partial_bytes(), {}), placement);
        add_schedule(EarlySum(costs_, model.partial_bytes(), {.beside_statistics = true}),
                     placement);
    }

    /// The step time of the faster order, and with receives posted late or early.
    [[nodiscard]] double step_ns(int pieces, EarlySum::Change change) const {
        const EarlySum costs(costs_, model_.partial_bytes(), change);
        int64_t best = INT64_MAX;
        for (const Schedule& schedule : schedules_) {
            for (const int ahead : {1, kAsSoonAsSent}) {
                const auto programs =
                    lower(schedule, sizes_, costs, {.receive_ahead = ahead, .pieces = pieces});
                best = std::min(best, simulate(programs, costs).summary.makespan_ns);
            }
        }
        return static_cast<double>(best);
    }
    [[nodiscard]] int64_t product_ns() const { return product_ns_; }

    /// Whole messages: C1, factors, exchange, fold and gather one after the other, then the wait of
    /// the sum for the last stage's backward. Means over microbatches, in us.
    [[nodiscard]] std::array<double, 6> path_us() const {
        const Schedule& schedule = schedules_.front();
        const auto programs = lower(schedule, sizes_, costs_, {.receive_ahead = kAsSoonAsSent});
        const Timeline timeline = simulate(programs, costs_).timeline;
        const auto backward = static_cast<uint16_t>(schedule.stages - 1);
        // [microbatch] when each had ended on all ranks, S before them; then B's begin.
        std::vector<std::array<int64_t, 7>> at(static_cast<size_t>(schedule.microbatches));
        for (const Span& span : timeline.spans) {
            const Program& program = programs[span.rank];
            const Action& action = program.actions[span.action];
            const auto ended = [&](uint32_t microbatch, size_t what) {
                int64_t& end = at[microbatch][what];
                end = std::max(end, span.end_ns);
            };
            if (action.what == Do::pass) {
                const Pass& pass = program.passes[action.item];
                if (pass.op == Op::S) ended(pass.microbatch, 0);
                const bool is_backward = pass.op == Op::B || pass.op == Op::I;
                if (is_backward && pass.stage == backward) at[pass.microbatch][6] = span.begin_ns;
                continue;
            }
            const bool of_output = action.reduction == kOutputReduction;
            if (action.what == Do::all_gather) ended(action.item, 1);
            if (action.what == Do::combine_softmax) ended(action.item, 2);
            if (action.what == Do::all_to_all && of_output) ended(action.item, 3);
            if (action.what == Do::ordered_sum && of_output) ended(action.item, 4);
            if (action.what == Do::gather && of_output) ended(action.item, 5);
        }
        std::array<double, 6> mean{};
        for (const auto& times : at) {
            for (size_t i = 0; i < mean.size(); ++i) {
                mean[i] += static_cast<double>(times[i + 1] - times[i]) / 1000 /
                           static_cast<double>(at.size());
            }
        }
        return mean;
    }

private:
    static constexpr double kFlopsPerNs = 140'000;
    static constexpr double kLocalBytesPerNs = 1000;

    void add_schedule(const CostModel& costs, const Schedule& placement) {
        options_.costs = PassCosts::of(costs, sizes_, placement);
        schedules_.push_back(make_schedule(family_, options_));
    }

    SummedModel model_;
    const char* family_;
    ScheduleOptions options_;
    TableCosts costs_;
    StepSizes sizes_;
    int64_t product_ns_ = 0;
    std::vector<Schedule> schedules_;
};

constexpr std::array kSumFamilies{"1f1b", "zb-h1", "v-half", "zb-v"};
constexpr double kNetwork = 20;   ///< GB/s, a network adapter for each GPU
constexpr double kAsForward = 0;  ///< the exchange takes as long as a rank's forward

/// The difference of ratios of step times, in the table and here.
constexpr double kSameGain = 0.0005;

/// Mean and least of step times over others.
struct Ratios {
    double log_sum = 0;
    double least = 2;
    int count = 0;

    void add(double ratio) {
        log_sum += std::log(ratio);
        least = std::min(least, ratio);
        ++count;
    }
    [[nodiscard]] double mean() const { return std::exp(log_sum / count); }
};

template <typename Visit>
void each_step(VocabMode mode, double link, Visit&& visit) {
    for (const char* family : kSumFamilies) {
        for (const int ranks : {4, 8}) {
            for (const int64_t vocab : {32768, 262144}) {
                const SummedModel model{.ranks = ranks, .layers = 4 * ranks, .vocab = vocab};
                visit(SummedStep(family, mode, model, link));
            }
        }
    }
}

// The table of docs/overlap.md.
TEST(EarlySum, OfOneBarrierGainsLessThanItsLabelRowsCost) {
    struct Row {
        double link = 0;
        // Ratios of step times with the same pieces: mean and least; with label rows, mean.
        double whole = 1, whole_least = 1, whole_with_labels = 1;
        double pieces = 1, pieces_least = 1, pieces_with_labels = 1;
    };
    constexpr std::array kRows{Row{.link = kNetwork,
                                   .whole = 1.0000,
                                   .whole_least = 0.9998,
                                   .whole_with_labels = 1.0004,
                                   .pieces = 0.9996,
                                   .pieces_least = 0.9981,
                                   .pieces_with_labels = 0.9999},
                               Row{.link = kAsForward,
                                   .whole = 0.9994,
                                   .whole_least = 0.9981,
                                   .whole_with_labels = 1.0394,
                                   .pieces = 0.9952,
                                   .pieces_least = 0.9786,
                                   .pieces_with_labels = 1.0284}};
    for (const Row& row : kRows) {
        Ratios whole, whole_with_labels, pieces, pieces_with_labels;
        each_step(VocabMode::one_barrier, row.link, [&](const SummedStep& step) {
            // bf16 rows of W beside fp32 rows of u: half as much again.
            const auto change = [&](double bytes, int64_t product_ns) {
                return EarlySum::Change{
                    .beside_statistics = true, .bytes = bytes, .product_ns = product_ns};
            };
            const double plain = step.step_ns(1, {});
            whole.add(step.step_ns(1, change(1, 0)) / plain);
            whole_with_labels.add(step.step_ns(1, change(1.5, 0)) / plain);
            const double streamed = step.step_ns(kSumPieces, {});
            pieces.add(step.step_ns(kSumPieces, change(1, step.product_ns())) / streamed);
            pieces_with_labels.add(step.step_ns(kSumPieces, change(1.5, step.product_ns())) /
                                   streamed);
        });
        EXPECT_NEAR(whole.mean(), row.whole, kSameGain) << row.link;
        EXPECT_NEAR(whole.least, row.whole_least, kSameGain) << row.link;
        EXPECT_NEAR(whole_with_labels.mean(), row.whole_with_labels, kSameGain) << row.link;
        EXPECT_NEAR(pieces.mean(), row.pieces, kSameGain) << row.link;
        EXPECT_NEAR(pieces.least, row.pieces_least, kSameGain) << row.link;
        EXPECT_NEAR(pieces_with_labels.mean(), row.pieces_with_labels, kSameGain) << row.link;
    }
}

TEST(EarlySum, OfTwoBarriersGainsLittleByPieces) {
    struct Row {
        double link = 0, mean = 1, least = 1;
    };
    for (const auto& [link, mean, least] :
         {Row{kNetwork, 0.9998, 0.9991}, Row{kAsForward, 0.9985, 0.9879}}) {
        Ratios pieces;
        each_step(VocabMode::two_barriers, link, [&](const SummedStep& step) {
            pieces.add(step.step_ns(kSumPieces, {.product_ns = step.product_ns()}) /
                       step.step_ns(kSumPieces, {}));
        });
        EXPECT_NEAR(pieces.mean(), mean, kSameGain) << link;
        EXPECT_NEAR(pieces.least, least, kSameGain) << link;
    }
}

TEST(EarlySum, OfOneBarrierIsThereLongBeforeItsBackward) {
    struct Row {
        const char* family;
        double link = 0;
        double waits_us = 0;  ///< the sum, for the backward
    };
    // C1, factors, exchange, fold, gather.
    constexpr std::array<double, 5> kNetworkUs{21, 25, 1268, 27, 561};
    constexpr std::array<double, 5> kAsForwardUs{138, 25, 13999, 27, 6130};
    for (const auto& [family, link, waits_us] :
         {Row{"1f1b", kNetwork, 13'884}, Row{"zb-h1", kNetwork, 24'683},
          Row{"v-half", kNetwork, 53'477}, Row{"zb-v", kNetwork, 7974},
          Row{"1f1b", kAsForward, 31'724}, Row{"zb-h1", kAsForward, 294},
          Row{"v-half", kAsForward, 1442}, Row{"zb-v", kAsForward, 1118}}) {
        const SummedStep step(family, VocabMode::one_barrier, {.vocab = 262144}, link);
        const std::array<double, 6> path = step.path_us();
        const std::array<double, 5>& expected = link == kNetwork ? kNetworkUs : kAsForwardUs;
        for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_NEAR(path[i], expected[i], 1) << family << " " << i;
        }
        EXPECT_NEAR(path.back(), waits_us, 1) << family;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
