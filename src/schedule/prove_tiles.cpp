// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/prove_tiles.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace vocabpipe {

namespace {

/// A step of a member.
struct Place {
    size_t member = 0;
    size_t step = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
};

class Proof {
public:
    Proof(std::span<const ProvedOperation> operations, std::span<const std::vector<TileStep>> steps)
        : operations_(operations), steps_(steps) {
        for (const ProvedOperation& operation : operations) {
            auto& tiles = sharing_.emplace_back();
            for (int64_t tile = 0; tile < operation.functions.tiles; ++tile) {
                tiles[operation.functions.signal(tile)].push_back(tile);
            }
        }
    }

    void run() {
        each_step([this](Place at) { check(at); });
        each_step([this](Place at) {
            const TileStep& step = step_at(at);
            if (step.action == TileAction::make) {
                makers_[{step.operation, step.tile, target_of(step)}].push_back(at);
            }
        });
        each_step([this](Place at) {
            if (step_at(at).action == TileAction::wait) find_makers(at);
        });
        find_circle();
    }

private:
    template <typename Body>
    void each_step(const Body& body) const {
        for (size_t member = 0; member < steps_.size(); ++member) {
            for (size_t step = 0; step < steps_[member].size(); ++step) body({member, step});
        }
    }
    [[nodiscard]] const TileStep& step_at(Place at) const { return steps_[at.member][at.step]; }
    [[nodiscard]] const ProvedOperation& operation_of(const TileStep& step) const {
        return operations_[static_cast<size_t>(step.operation)];
    }
    [[nodiscard]] int target_of(const TileStep& step) const {
        return step.member >= 0 ? step.member : operation_of(step).functions.member(step.tile);
    }

    void check(Place at) const {
        const TileStep& step = step_at(at);
        const std::string rank = "rank " + std::to_string(at.member) + ": ";
        if (step.operation < 0 || step.operation >= std::ssize(operations_)) {
            throw UsageError(rank + "operation " + std::to_string(step.operation) + " of " +
                             std::to_string(operations_.size()) + " does not exist");
        }
        const ProvedOperation& operation = operation_of(step);
        if (step.tile < 0 || step.tile >= operation.functions.tiles) {
            throw UsageError(rank + operation.name + ": tile " + std::to_string(step.tile) +
                             " of " + std::to_string(operation.functions.tiles) +
                             " does not exist");
        }
        const int target = step.action == TileAction::make ? target_of(step) : 0;
        if (target < 0 || target >= std::ssize(steps_)) {
            throw UsageError(rank + operation.name + ": makes tile " + std::to_string(step.tile) +
                             " for rank " + std::to_string(target) + " of " +
                             std::to_string(steps_.size()) + ", which does not exist");
        }
    }

    /// Notes what a wait needs: the one maker of each tile that shares its signal.
    void find_makers(Place at) {
        const TileStep& step = step_at(at);
        const ProvedOperation& operation = operation_of(step);
        const std::string text = "rank " + std::to_string(at.member) + ": " + operation.name +
                                 ": waits for tile " + std::to_string(step.tile);
        const int signal = operation.functions.signal(step.tile);
        for (const int64_t tile : sharing_[static_cast<size_t>(step.operation)].at(signal)) {
            const std::string which =
                tile == step.tile ? "" : " with the signal of tile " + std::to_string(tile);
            const auto makers = makers_.find({step.operation, tile, static_cast<int>(at.member)});
            if (makers == makers_.end()) {
                throw UsageError(text + which + ", which no rank makes for it");
            }
            if (makers->second.size() > 1) {
                throw UsageError(text + which + ", which is made for it twice: by rank " +
                                 std::to_string(makers->second[0].member) + " and by rank " +
                                 std::to_string(makers->second[1].member));
            }
            needs_[at].push_back(makers->second.front());
        }
    }

    /// Lets members go on as far as they can, and names a circle if that is not to the end.
    void find_circle() {
        std::vector<size_t> done(steps_.size());
        const auto is_done = [&](Place at) { return at.step < done[at.member]; };
        const auto missing = [&](Place at) -> const Place* {
            const auto needs = needs_.find(at);
            if (needs == needs_.end()) return nullptr;
            const auto one = std::find_if_not(needs->second.begin(), needs->second.end(), is_done);
            return one == needs->second.end() ? nullptr : &*one;
        };
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t member = 0; member < steps_.size(); ++member) {
                while (done[member] < steps_[member].size() &&
                       missing({member, done[member]}) == nullptr) {
                    ++done[member];
                    moved = true;
                }
            }
        }
        std::vector<size_t> walk;  // members, each of which waits for the next
        for (size_t member = 0; member < steps_.size(); ++member) {
            if (done[member] == steps_[member].size()) continue;
            while (std::find(walk.begin(), walk.end(), member) == walk.end()) {
                walk.push_back(member);
                member = missing({member, done[member]})->member;
            }
            walk.erase(walk.begin(), std::find(walk.begin(), walk.end(), member));
            throw UsageError(circle_text(walk, done));
        }
    }

    [[nodiscard]] std::string circle_text(const std::vector<size_t>& walk,
                                          const std::vector<size_t>& done) const {
        std::string text = "tiles wait in a circle: ";
        for (size_t i = 0; i < walk.size(); ++i) {
            const size_t member = walk[i];
            const TileStep& step = step_at({member, done[member]});
            text += (i == 0 ? "rank " + std::to_string(member) : ", which before that") +
                    " waits in " + operation_of(step).name + " for tile " +
                    std::to_string(step.tile) + " of rank " +
                    std::to_string(walk[(i + 1) % walk.size()]);
        }
        return text;
    }

    std::span<const ProvedOperation> operations_;
    std::span<const std::vector<TileStep>> steps_;
    std::vector<std::map<int, std::vector<int64_t>>> sharing_;  ///< [operation] signal -> tiles
    std::map<std::tuple<int, int64_t, int>, std::vector<Place>> makers_;  ///< operation, tile, at
    std::map<Place, std::vector<Place>> needs_;                           ///< of waits
};

}  // namespace

void prove_tiles(std::span<const ProvedOperation> operations,
                 std::span<const std::vector<TileStep>> steps) {
    Proof(operations, steps).run();
}

}  // namespace vocabpipe
