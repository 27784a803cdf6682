// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/lowered_tokens.hpp"

#include "src/schedule/files/cell.hpp"
#include "src/schedule/files/lowered_cells.hpp"
#include "src/schedule/files/tokens.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace vocabpipe::files {

namespace {

/// A cell of a row: passes (two are a pair), or another action.
struct Cell {
    std::span<const Pass> passes;  ///< empty: `word`
    Transfer word = Transfer::send_f;
    uint32_t stage = 0;
    uint32_t microbatch = 0;
};

class Lowering {
public:
    Lowering(const Schedule& schedule, const std::vector<std::vector<Pass>>& lists)
        : schedule_(schedule),
          lists_(lists),
          microbatches_(static_cast<size_t>(schedule.microbatches)),
          arrived_(2 * static_cast<size_t>(schedule.stages) * microbatches_, false) {}

    std::vector<std::vector<Cell>> run() {
        std::vector<std::vector<Cell>> rows;
        for (const std::vector<Pass>& list : lists_) rows.push_back(sharded(list));
        rows = with_messages(rows);
        for (std::vector<Cell>& row : rows) row = with_waits(row);
        return rows;
    }

private:
    // --- weights and gradients -------------------------------------------------------------------

    /// One cell for every pass or pair.
    static std::vector<Cell> cells_of(const std::vector<Pass>& list) {
        std::vector<Cell> cells;
        for (size_t i = 0; i < list.size(); ++i) {
            const size_t size = list[i].with_next ? 2 : 1;
            cells.push_back({.passes = std::span(list).subspan(i, size)});
            i += size - 1;
        }
        return cells;
    }

    /// Unshards the weights of the next three stages that the rank runs, and reduces gradients
    /// after the last pass that adds to them.
    std::vector<Cell> sharded(const std::vector<Pass>& list) const {
        const std::vector<Cell> cells = cells_of(list);
        std::vector<size_t> last(static_cast<size_t>(schedule_.stages), 0);  // cell, from 1
        for (size_t i = 0; i < cells.size(); ++i) {
            for (const Pass& pass : cells[i].passes) last[pass.stage] = i + 1;
        }
        std::vector<size_t> gradients(last.size(), microbatches_);
        std::vector<uint32_t> whole;  // stages in the order of their UNSHARD
        std::vector<Cell> result;
        for (size_t i = 0; i < cells.size(); ++i) {
            const std::vector<uint32_t> next = next_stages(cells, i, last);
            std::erase_if(whole, [&](uint32_t stage) {
                if (std::ranges::find(next, stage) != next.end()) return false;
                result.push_back({.word = Transfer::reshard, .stage = stage});
                return true;
            });
            for (const uint32_t stage : next) {
                if (std::ranges::find(whole, stage) != whole.end()) continue;
                whole.push_back(stage);
                result.push_back({.word = Transfer::unshard, .stage = stage});
            }
            result.push_back(cells[i]);
            for (const Pass& pass : cells[i].passes) {
                if (pass.op != Op::B && pass.op != Op::W) continue;
                if (--gradients[pass.stage] > 0) continue;
                result.push_back({.word = Transfer::reduce_grad, .stage = pass.stage});
                result.push_back({.word = Transfer::wait_reduce_grad, .stage = pass.stage});
            }
        }
        for (const uint32_t stage : whole) {
            result.push_back({.word = Transfer::reshard, .stage = stage});
        }
        return result;
    }

    /// The first three stages that run from cell `from` on; a pair may make them four.
    static std::vector<uint32_t> next_stages(const std::vector<Cell>& cells, size_t from,
                                             const std::vector<size_t>& last) {
        constexpr std::ptrdiff_t kMost = 3;
        const auto left = std::ranges::count_if(last, [&](size_t cell) { return cell > from; });
        std::vector<uint32_t> next;
        for (size_t i = from; std::ssize(next) < std::min(kMost, left); ++i) {
            for (const Pass& pass : cells[i].passes) {
                if (std::ranges::find(next, pass.stage) == next.end()) next.push_back(pass.stage);
            }
        }
        return next;
    }

    // --- messages --------------------------------------------------------------------------------

    /// Ranks take turns, one cell each. A sender puts the receive into the other rank's row, which
    /// gives both ends of a channel the same order.
    std::vector<std::vector<Cell>> with_messages(const std::vector<std::vector<Cell>>& rows) {
        std::vector<std::vector<Cell>> result(rows.size());
        std::vector<size_t> next(rows.size(), 0);
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t rank = 0; rank < rows.size(); ++rank) {
                if (next[rank] == rows[rank].size()) continue;
                const Cell& cell = rows[rank][next[rank]];
                if (!std::ranges::all_of(cell.passes, [&](const Pass& p) { return ready(p); })) {
                    continue;
                }
                ++next[rank];
                moved = true;
                result[rank].push_back(cell);
                for (const Pass& pass : cell.passes) send(pass, result);
            }
        }
        return result;
    }

    size_t index(bool forward, uint32_t stage, uint32_t microbatch) const {
        const auto half = forward ? size_t{0} : static_cast<size_t>(schedule_.stages);
        return (half + stage) * microbatches_ + microbatch;
    }

    /// Whether the pass that makes its input has run; then the receive is in the row, too.
    bool ready(const Pass& pass) const {
        if (pass.op == Op::F)
            return pass.stage == 0 || arrived_[index(true, pass.stage, pass.microbatch)];
        if (!is_backward(pass.op) || pass.stage + 1 == schedule_.stages) return true;
        return arrived_[index(false, pass.stage, pass.microbatch)];
    }

    void send(const Pass& pass, std::vector<std::vector<Cell>>& rows) {
        const bool forward = pass.op == Op::F;
        if (!forward && !is_backward(pass.op)) return;
        if (forward ? pass.stage + 1 == schedule_.stages : pass.stage == 0) return;
        const uint32_t stage = forward ? pass.stage + 1U : pass.stage - 1U;
        arrived_[index(forward, stage, pass.microbatch)] = true;
        const auto from = static_cast<size_t>(schedule_.rank_of_stage[pass.stage]);
        const auto to = static_cast<size_t>(schedule_.rank_of_stage[stage]);
        if (from == to) return;
        const Transfer out = forward ? Transfer::send_f : Transfer::send_b;
        const Transfer in = forward ? Transfer::recv_f : Transfer::recv_b;
        rows[from].push_back({{}, out, pass.stage, pass.microbatch});
        rows[to].push_back({{}, in, stage, pass.microbatch});
    }

    // --- waits -----------------------------------------------------------------------------------

    /// A forward send is waited for after the backward of the same stage and microbatch, which
    /// proves that it was received; every other send at the end.
    static std::vector<Cell> with_waits(const std::vector<Cell>& row) {
        std::vector<Cell> pending;  // the sends not waited for, as their waits
        std::vector<Cell> result;
        for (const Cell& cell : row) {
            result.push_back(cell);
            if (cell.passes.empty() && cell.word == Transfer::send_f) {
                pending.push_back({{}, Transfer::wait_send_f, cell.stage, cell.microbatch});
            } else if (cell.passes.empty() && cell.word == Transfer::send_b) {
                pending.push_back({{}, Transfer::wait_send_b, cell.stage, cell.microbatch});
            }
            for (const Pass& pass : cell.passes) {
                if (!is_backward(pass.op)) continue;
                const auto wait = std::ranges::find_if(pending, [&](const Cell& one) {
                    return one.word == Transfer::wait_send_f && one.stage == pass.stage &&
                           one.microbatch == pass.microbatch;
                });
                if (wait == pending.end()) continue;
                result.push_back(*wait);
                pending.erase(wait);
            }
        }
        result.insert(result.end(), pending.begin(), pending.end());
        return result;
    }

    const Schedule& schedule_;
    const std::vector<std::vector<Pass>>& lists_;
    size_t microbatches_;
    std::vector<bool> arrived_;  ///< [forward or backward][stage][microbatch], input of that pass
};

std::string token_of(const Cell& cell) {
    if (!cell.passes.empty()) {
        return tokens_of({cell.passes.begin(), cell.passes.end()}, CsvDialect::current).front();
    }
    std::string token = std::to_string(cell.stage) + std::string(to_string(cell.word));
    if (cell.word <= Transfer::wait_send_b) token += std::to_string(cell.microbatch);
    return token;
}

}  // namespace

std::vector<std::vector<std::string>> lowered_tokens(const Schedule& schedule,
                                                     const std::vector<std::vector<Pass>>& lists) {
    std::vector<std::vector<std::string>> tokens;
    for (const std::vector<Cell>& row : Lowering(schedule, lists).run()) {
        tokens.emplace_back();
        for (const Cell& cell : row) tokens.back().push_back(token_of(cell));
    }
    return tokens;
}

}  // namespace vocabpipe::files
