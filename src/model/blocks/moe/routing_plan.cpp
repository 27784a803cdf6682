// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/moe/routing_plan.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

/// The least budget, unless the worst case is smaller.
constexpr int64_t kTileRows = 128;

}  // namespace

int64_t RoutingShape::most_copies() const {
    return std::min<int64_t>(per_token * expert_tensor, members);
}
int64_t RoutingShape::most_rows_of_copy() const {
    return std::min(per_token, own_experts());
}
int64_t RoutingShape::most_rows() const {
    return members * tokens * most_rows_of_copy();
}
int64_t RoutingShape::mean_rows_of_expert() const {
    return std::max<int64_t>(1, (members * tokens * per_token + experts - 1) / experts);
}
int64_t RoutingShape::most_received() const {
    return std::min(budget, members * tokens);
}

int64_t row_budget(const RoutingShape& shape, double factor) {
    const double mean = static_cast<double>(shape.tokens) * static_cast<double>(shape.per_token) *
                        shape.expert_tensor;
    const auto wanted = static_cast<int64_t>(std::ceil(factor * mean));
    const int64_t least = std::max(kTileRows, shape.most_rows_of_copy());
    return std::min(std::max(wanted, least), shape.most_rows());
}

RoutingPlan::RoutingPlan(const RoutingShape& shape, int rank,
                         std::vector<std::span<const int32_t>> choices)
    : shape_(shape), rank_(rank), choices_(std::move(choices)) {
    if (std::ssize(choices_) != shape.members || shape.members % shape.expert_tensor != 0 ||
        shape.experts * shape.expert_tensor % shape.members != 0) {
        throw UsageError("routing plan: " + std::to_string(choices_.size()) + " choices of " +
                         std::to_string(shape.members) + " members with " +
                         std::to_string(shape.experts) + " experts, each of " +
                         std::to_string(shape.expert_tensor) + " members");
    }
    std::vector<int64_t> rows(choices_.size(), 0);  // of the first member that has an expert
    for (const std::span<const int32_t> of_member : choices_) {
        if (std::ssize(of_member) != shape.tokens * shape.per_token) {
            throw UsageError("routing plan: " + std::to_string(of_member.size()) + " choices of " +
                             std::to_string(shape.tokens) + " tokens");
        }
        for (const int32_t expert : of_member) {
            if (expert < 0 || expert >= shape.experts) {
                throw UsageError("routing plan: expert " + std::to_string(expert) + " of " +
                                 std::to_string(shape.experts));
            }
            const int64_t group = expert / shape.own_experts();
            ++rows[static_cast<size_t>(group * shape.expert_tensor)];
        }
    }
    for (int member = 0; member < shape.members; ++member) {
        const int first = member - member % shape.expert_tensor;
        exceeds_.push_back(rows[static_cast<size_t>(first)] > shape.budget);
    }
    if (std::ranges::find(exceeds_, true) == exceeds_.end()) return;
    if (shape.budget < shape.most_rows_of_copy()) {
        throw UsageError("routing plan: a budget of " + std::to_string(shape.budget) +
                         " rows; one token can make " + std::to_string(shape.most_rows_of_copy()));
    }
    for (int owner = 0; owner < shape.members; ++owner) {
        for_copies(owner, [&](int, int64_t, int wave) { waves_ = std::max(waves_, wave + 1); });
    }
}

int64_t RoutingPlan::rows_of(int source, int64_t token, int owner) const {
    const std::span<const int32_t> of_token = choices_[static_cast<size_t>(source)].subspan(
        static_cast<size_t>(token * shape_.per_token), static_cast<size_t>(shape_.per_token));
    const int64_t first = shape_.first_expert(owner);
    return std::ranges::count_if(of_token, [&](int32_t expert) {
        return expert >= first && expert < first + shape_.own_experts();
    });
}

template <typename Take>
void RoutingPlan::for_copies(int owner, const Take& take) const {
    int wave = 0;
    int64_t in_wave = 0;
    for (int i = 0; i < shape_.members; ++i) {
        const int source = (owner - i + shape_.members) % shape_.members;
        for (int64_t token = 0; token < shape_.tokens; ++token) {
            const int64_t rows = rows_of(source, token, owner);
            if (rows == 0) continue;
            if (exceeds_[static_cast<size_t>(owner)] && in_wave + rows > shape_.budget) {
                ++wave;
                in_wave = 0;
            }
            in_wave += rows;
            take(source, token, wave);
        }
    }
}

RoutingWave RoutingPlan::wave(int number) const {
    RoutingWave wave;
    send_from_home(wave, number);
    receive_copies(wave, number);
    sort_rows(wave);
    order_steps(wave);
    return wave;
}

void RoutingPlan::send_from_home(RoutingWave& wave, int number) const {
    const auto members = static_cast<size_t>(shape_.members);
    wave.tokens.resize(members);
    wave.copy_of_token.assign(static_cast<size_t>(shape_.tokens) * members, -1);
    for (size_t member = 0; member < members; ++member) {
        std::vector<int32_t>& tokens = wave.tokens[member];
        const auto send = [&](int64_t token) {
            wave.copy_of_token[static_cast<size_t>(token) * members + member] =
                static_cast<int32_t>(tokens.size());
            tokens.push_back(static_cast<int32_t>(token));
        };
        const int owner = static_cast<int>(member);
        if (exceeds_[member]) {
            for_copies(owner, [&](int source, int64_t token, int in) {
                if (source == rank_ && in == number) send(token);
            });
        } else if (number == 0) {  // no need to visit all members' tokens
            for (int64_t token = 0; token < shape_.tokens; ++token) {
                if (rows_of(rank_, token, owner) > 0) send(token);
            }
        }
    }
}

void RoutingPlan::receive_copies(RoutingWave& wave, int number) const {
    wave.copies.resize(static_cast<size_t>(shape_.members));
    for_copies(rank_, [&](int source, int64_t token, int in) {
        if (in != number) return;
        RowRange& of_source = wave.copies[static_cast<size_t>(source)];
        if (of_source.size() == 0) of_source = {wave.copy_count(), wave.copy_count()};
        wave.token_of_copy.push_back(static_cast<int32_t>(source * shape_.tokens + token));
        ++of_source.end;
    });
}

void RoutingPlan::sort_rows(RoutingWave& wave) const {
    const int64_t k = shape_.per_token;
    const int64_t first = shape_.first_expert(rank_);
    wave.row_of_slot.assign(static_cast<size_t>(wave.copy_count() * k), -1);
    std::vector<int64_t> next(static_cast<size_t>(shape_.own_experts()), 0);
    const auto for_slots = [&](const auto& work) {
        for (int64_t copy = 0; copy < wave.copy_count(); ++copy) {
            const int64_t token = wave.token_of_copy[static_cast<size_t>(copy)];
            const auto of_source = choices_[static_cast<size_t>(token / shape_.tokens)];
            for (int64_t i = 0; i < k; ++i) {
                const int64_t expert =
                    of_source[static_cast<size_t>(token % shape_.tokens * k + i)] - first;
                if (expert >= 0 && expert < shape_.own_experts()) {
                    work(copy * k + i, static_cast<size_t>(expert));
                }
            }
        }
    };
    for_slots([&](int64_t, size_t expert) { ++next[expert]; });
    int64_t row = 0;
    for (int64_t& of_expert : next) {
        wave.rows.push_back({row, row + of_expert});
        row = std::exchange(of_expert, row) + row;
    }
    wave.slot_of_row.resize(static_cast<size_t>(row));
    for_slots([&](int64_t slot, size_t expert) {
        wave.row_of_slot[static_cast<size_t>(slot)] = static_cast<int32_t>(next[expert]);
        wave.slot_of_row[static_cast<size_t>(next[expert]++)] = static_cast<int32_t>(slot);
    });
}

void RoutingPlan::order_steps(RoutingWave& wave) const {
    std::vector<RoutingWave::Step>& steps = wave.steps;
    std::vector<size_t> step_of_copy;
    for (int i = 0; i < shape_.members; ++i) {
        const int source = (rank_ - i + shape_.members) % shape_.members;
        const int64_t copies = wave.copies[static_cast<size_t>(source)].size();
        const TileMap map = pieces_of_copies(copies, i == 0 ? 1 : shape_.pieces);
        for (int piece = 0; piece < map.pieces(0); ++piece) {
            step_of_copy.resize(
                step_of_copy.size() + static_cast<size_t>(map.rows(0, piece).size()), steps.size());
            steps.push_back({.source = source, .pieces = piece + 1, .rows = {}});
            for (const RowRange& of_expert : wave.rows) {
                steps.back().rows.push_back({of_expert.first, of_expert.first});
            }
        }
    }
    std::vector<int64_t> counts;
    for (const RowRange& of_expert : wave.rows) counts.push_back(of_expert.size());
    const TileMap tiles = TileMap::of_counts(counts, TileMap::kFewest);
    for (int expert = 0; expert < tiles.members(); ++expert) {
        for (int tile = 0; tile < tiles.pieces(expert); ++tile) {
            // Rows are in the order of copies, so the last row needs the last copy.
            const RowRange rows = tiles.rows(expert, tile);
            const auto last = wave.slot_of_row[static_cast<size_t>(rows.end - 1)];
            const auto step = step_of_copy[static_cast<size_t>(last / shape_.per_token)];
            RowRange& at_once = steps[step].rows[static_cast<size_t>(expert)];
            if (at_once.size() == 0) at_once.first = rows.first;
            at_once.end = rows.end;
        }
    }
}

}  // namespace vocabpipe
