// SPDX-License-Identifier: Apache-2.0
#include "src/plan/plan_lengths.hpp"

#include "src/plan/evaluate.hpp"
#include "src/plan/model_on_device.hpp"
#include "src/plan/unit_costs.hpp"
#include "src/support/length_buckets.hpp"
#include "vocabpipe/microbatch_lengths.hpp"
#include "vocabpipe/model_flops.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

namespace vocabpipe {

namespace {

/// What microbatches of shorter sequences take: on a device as it computes them, with a profile,
/// which measured one length, by FLOPs.
class Shares {
public:
    Shares(const PlanOptions& options, const Candidate& candidate)
        : model_(options), candidate_(candidate), by_flops_(options.profile.has_value()) {
        if (!by_flops_) longest_ = layers_of(model_.config.seq_length);
    }

    [[nodiscard]] LengthShares of(int64_t seq_length) const {
        if (by_flops_) return length_shares(model_.config, candidate_.recompute, seq_length);
        const double tokens =
            static_cast<double>(seq_length) / static_cast<double>(model_.config.seq_length);
        const LayerTimes layers = layers_of(seq_length);
        LengthShares shares = LengthShares::of(layers.forward / longest_.forward, tokens, 0);
        for (const auto& [op, time] : {std::pair{Op::I, &LayerTimes::input_gradient},
                                       {Op::W, &LayerTimes::weight_gradient},
                                       {Op::B, &LayerTimes::backward},
                                       {Op::R, &LayerTimes::recompute}}) {
            if (!(longest_.*time > 0)) continue;
            shares.op_ppm[static_cast<size_t>(op)] =
                std::llround(1e6 * layers.*time / longest_.*time);
        }
        return shares;
    }

private:
    /// Times of all layers together.
    [[nodiscard]] LayerTimes layers_of(int64_t seq_length) const {
        ModelOnDevice model = model_;
        model.config.seq_length = seq_length;
        LayerTimes sum;
        for (const LayerTimes& layer : unit_costs(model, candidate_).layers) sum.add(layer);
        return sum;
    }

    const ModelOnDevice model_;
    const Candidate& candidate_;
    const bool by_flops_;
    LayerTimes longest_;
};

/// Documents, longer ones cut into pieces of a sequence and a rest.
std::map<int64_t, double> fragments_of(const PlanOptions& options) {
    std::map<int64_t, double> count;
    for (const LengthCount& of_length : options.documents) {
        const auto documents = static_cast<double>(of_length.count);
        const int64_t whole = of_length.length / options.seq_length;
        const int64_t rest = of_length.length % options.seq_length;
        if (whole > 0) count[options.seq_length] += documents * static_cast<double>(whole);
        if (rest > 0) count[rest] += documents;
    }
    std::erase_if(count, [](const auto& entry) { return entry.second == 0; });
    return count;
}

/// Time of a full sequence of whole documents, by the share of its attention: with x the length as
/// a part of a sequence, layers take (1 - q) x + q x^2, where q follows from half a sequence.
LengthShares packed_shares(const LengthShares& half, double mean_square) {
    LengthShares shares = half;
    shares.tokens_ppm = 1'000'000;
    for (size_t op = 0; op < shares.op_ppm.size(); ++op) {
        const double q = std::clamp(2 - 4e-6 * static_cast<double>(half.op_ppm[op]), 0.0, 1.0);
        shares.op_ppm[op] = std::llround(1e6 * (1 - q + q * mean_square));
    }
    return shares;
}

/// Index of a length for each of a step's microbatches, 0 for the longest: the step has documents
/// in their shares, each of the smallest length that holds it, sorted by length; a microbatch has
/// the length of its longest (arrange_by_length()).
std::vector<int> microbatch_lengths(const std::map<int64_t, double>& fragments,
                                    const std::vector<int64_t>& buckets, const Candidate& candidate,
                                    int64_t global_batch_size) {
    std::vector<double> share(buckets.size());  // [from the longest]
    double all = 0;
    for (const auto& [length, count] : fragments) {
        const auto bucket = std::ranges::lower_bound(buckets, length) - buckets.begin();
        share[buckets.size() - 1 - static_cast<size_t>(bucket)] += count;
        all += count;
    }
    const int64_t per_microbatch = candidate.micro_batch_size * candidate.mesh.data;
    std::vector<int> lengths;
    double up_to = 0;
    size_t bucket = 0;
    for (int j = 0; j < candidate.microbatches; ++j) {
        // The longest sample of the microbatch, when all are sorted.
        const auto first = static_cast<double>(j * per_microbatch) + 0.5;
        while (bucket + 1 < buckets.size() &&
               first > (up_to + share[bucket]) / all * static_cast<double>(global_batch_size)) {
            up_to += share[bucket++];
        }
        lengths.push_back(static_cast<int>(bucket));
    }
    return lengths;
}

}  // namespace

LengthPlan plan_lengths(const PlanOptions& options, const PlanRow& row) {
    const Candidate& candidate = row.candidate;
    const Shares shares(options, candidate);
    const Evaluator evaluator(options);
    const std::map<int64_t, double> fragments = fragments_of(options);
    const auto longest = static_cast<double>(options.seq_length);
    double count = 0, rows = 0, squares = 0;
    for (const auto& [length, number] : fragments) {
        const auto s = static_cast<double>(length);
        count += number;
        rows += number * s;
        squares += number * s * s;
    }
    const auto batch = static_cast<double>(options.global_batch_size);
    const auto per_second = [](double tokens, int64_t ns) {
        return tokens * 1e9 / static_cast<double>(ns);
    };
    LengthPlan plan;
    plan.padded = per_second(batch * rows / count, row.step_ns);
    const auto all = static_cast<size_t>(candidate.microbatches);
    plan.packed = per_second(
        batch * longest,
        evaluator.step_ns_of_lengths(candidate,
                                     {{.seq_length = options.seq_length,
                                       .shares = packed_shares(shares.of(options.seq_length / 2),
                                                               squares / (rows * longest))}},
                                     std::vector<int>(all, 1), row.evaluation));

    plan.lengths = choose_length_buckets(
        options.documents, {.seq_length = options.seq_length}, [&](int64_t length) {
            return static_cast<double>(shares.of(length).op_ppm[static_cast<size_t>(Op::F)]);
        });
    std::vector<ShorterLength> shorter;
    for (size_t i = plan.lengths.size() - 1; i-- > 0;) {
        shorter.push_back({.seq_length = plan.lengths[i], .shares = shares.of(plan.lengths[i])});
    }
    const std::vector<int> lengths =
        microbatch_lengths(fragments, plan.lengths, candidate, options.global_batch_size);
    for (size_t i = 0; i < plan.lengths.size(); ++i) {
        const auto index = static_cast<int>(plan.lengths.size() - 1 - i);
        plan.microbatches.push_back(
            {.length = plan.lengths[i], .count = std::ranges::count(lengths, index)});
    }
    plan.by_length =
        per_second(batch * rows / count,
                   evaluator.step_ns_of_lengths(candidate, shorter, lengths, row.evaluation));
    return plan;
}

}  // namespace vocabpipe
