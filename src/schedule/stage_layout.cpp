// SPDX-License-Identifier: Apache-2.0
// A parser and a printer of Megatron's layout notation, and the rules that spread layers over
// stages.
#include "vocabpipe/stage_layout.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

namespace vocabpipe {

namespace {

constexpr size_t kMostSymbols = size_t{1} << 20;  // after repetition
constexpr size_t kMostLayoutStages = 65535;       // Pass::stage

struct Symbol {
    char letter;
    size_t position;  ///< in the text, from 0
};

class LayoutParser {
public:
    LayoutParser(std::string_view text, const StageLayoutOptions& options)
        : text_(text), options_(options) {}

    StageLayout run() {
        expand();
        split();
        StageLayout layout;
        layout.sharded_input = take_input();
        layout.sharded_output = take_output();
        take_depths(layout);
        for (const auto& stage : stages_) {
            for (const Symbol& symbol : stage) check_is_layer(symbol);
            layout.layers.push_back(static_cast<int>(stage.size()));
        }
        check_counts(layout);
        return layout;
    }

private:
    [[noreturn]] void fail(const std::string& reason) const {
        constexpr size_t kMost = 80;
        std::string shown;
        for (const char c : text_.substr(0, kMost)) shown += c >= 0x20 && c < 0x7f ? c : '?';
        throw UsageError("layout \"" + shown + (text_.size() > kMost ? "...\"" : "\"") + ": " +
                         reason);
    }
    [[noreturn]] void fail_at(size_t position, const std::string& reason) const {
        fail("position " + std::to_string(position + 1) + ": " + reason);
    }

    char peek() {
        while (at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ' ')) ++at_;
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    bool end() {
        (void)peek();
        return at_ == text_.size();
    }

    void expand() {
        while (!end()) {
            const size_t first = symbols_.size();
            if (peek() == '(') {
                group();
            } else {
                symbol();
            }
            repeat(first);
        }
    }

    void group() {
        const size_t opened = at_++;
        const size_t first = symbols_.size();
        while (peek() != ')') {
            if (end()) fail_at(opened, "( is never closed");
            if (peek() == '(') fail_at(at_, "parentheses cannot be nested");
            const size_t inner = symbols_.size();
            symbol();
            repeat(inner);
        }
        if (symbols_.size() == first) fail_at(opened, "nothing between ( and )");
        ++at_;
    }

    void symbol() {
        const char letter = peek();
        if (std::string_view("EtmLV|").find(letter) == std::string_view::npos) {
            const std::string what =
                letter >= 0x20 && letter < 0x7f ? std::string("'") + letter + "'" : "a character";
            fail_at(at_, what + " is not valid; use E t m L V | ( ) * and digits");
        }
        symbols_.push_back({letter, at_++});
    }

    /// If `*n` follows, repeats the symbols from `first` on.
    void repeat(size_t first) {
        if (peek() != '*') return;
        const size_t star = at_++;
        const auto digit = [&] { return peek() >= '0' && peek() <= '9'; };
        if (!digit()) fail_at(star, "* must be followed by a number");
        size_t times = 0;
        while (digit()) {
            times =
                std::min(kMostSymbols + 1, 10 * times + static_cast<size_t>(text_[at_++] - '0'));
        }
        if (times == 0) fail_at(star, "repeats 0 times; remove it");
        const size_t added = symbols_.size() - first;
        if (times > kMostSymbols || symbols_.size() + (times - 1) * added > kMostSymbols) {
            fail_at(star, "repeats to more than " + std::to_string(kMostSymbols) + " layers");
        }
        for (size_t i = 0; i < (times - 1) * added; ++i) {
            symbols_.push_back(Symbol{symbols_[first + i]});
        }
    }

    void split() {
        stages_.emplace_back();
        for (const Symbol& symbol : symbols_) {
            if (symbol.letter != '|') {
                stages_.back().push_back(symbol);
            } else if (stages_.size() == kMostLayoutStages) {
                fail_at(symbol.position, "more than 65535 stages");
            } else {
                stages_.emplace_back();
            }
        }
    }

    bool take_input() {
        auto& stage = stages_.front();
        if (stage.empty() || (stage.front().letter != 'E' && stage.front().letter != 'V')) {
            fail("must start with E, the embedding, or V, the embedding sharded over all ranks");
        }
        const bool sharded = stage.front().letter == 'V';
        stage.erase(stage.begin());
        return sharded;
    }

    bool take_output() {
        auto& stage = stages_.back();
        if (stage.empty() || (stage.back().letter != 'L' && stage.back().letter != 'V')) {
            fail(
                "must end with L, the output layer and loss, or V, the same sharded over all "
                "ranks");
        }
        const bool sharded = stage.back().letter == 'V';
        stage.pop_back();
        return sharded;
    }

    /// Takes the depths of multi-token prediction (m), which are the last layers of a stage.
    void take_depths(StageLayout& layout) {
        const Symbol* first = nullptr;
        for (size_t s = 0; s < stages_.size(); ++s) {
            for (const Symbol& symbol : stages_[s]) {
                if (symbol.letter == 't' && first != nullptr) {
                    fail_at(symbol.position, "t comes after m; put all t before it");
                }
                if (symbol.letter != 'm') continue;
                if (first == nullptr) {
                    first = &symbol;
                    layout.mtp_stage = static_cast<int>(s);
                }
                if (layout.mtp_stage != static_cast<int>(s)) {
                    fail_at(symbol.position, "m is in two stages; put all m into one");
                }
                ++layout.mtp_layers;
            }
        }
        if (first == nullptr) return;
        check_place_of_depths(layout.mtp_stage, first->position);
        std::erase_if(stages_[static_cast<size_t>(layout.mtp_stage)],
                      [](const Symbol& symbol) { return symbol.letter == 'm'; });
    }

    void check_place_of_depths(int stage, size_t position) const {
        const int p = options_.ranks;
        const auto stages = static_cast<int>(stages_.size());
        if (p <= 0 || stages % p != 0) return;  // check_counts() says so
        if (stage < stages - p) {
            fail_at(position,
                    "m is in stage " + std::to_string(stage) +
                        ", not in the last one of its rank; put it into one of the last " +
                        std::to_string(p) + " stages");
        }
        if (p > 1 && stage == stages - p) {
            fail_at(position, "m is on the first rank; put it into a later stage");
        }
    }

    void check_is_layer(const Symbol& symbol) const {
        if (symbol.letter == 't') return;
        fail_at(symbol.position,
                symbol.letter == 'E'   ? "E may only be the first letter of the first stage"
                : symbol.letter == 'L' ? "L may only be the last letter of the last stage"
                                       : "V may only be the first letter of the first stage or the "
                                         "last one of the last stage");
    }

    void check_counts(const StageLayout& layout) const {
        const auto stages = static_cast<int64_t>(layout.layers.size());
        const std::string has = "has " + std::to_string(stages) + " stages, ";
        const int64_t p = options_.ranks;
        const int64_t v = options_.chunks;
        if (p > 0 && v > 0 && stages != p * v) {
            fail(has + "expected " + std::to_string(p * v) + ": " + std::to_string(p) +
                 " ranks with " + std::to_string(v) + " each");
        }
        if (p > 0 && stages % p != 0) {
            fail(has + "but the number must be a multiple of " + std::to_string(p) +
                 ", the number of ranks");
        }
        if (options_.num_layers >= 0 && layout.num_layers() != options_.num_layers) {
            fail("has " + std::to_string(layout.num_layers()) +
                 " transformer layers (t), but the " + "model has " +
                 std::to_string(options_.num_layers));
        }
        if (options_.mtp_layers >= 0 && layout.mtp_layers != options_.mtp_layers) {
            fail("has " + std::to_string(layout.mtp_layers) +
                 " depths of multi-token prediction (m), but the model has " +
                 std::to_string(options_.mtp_layers) + " (--mtp-num-layers)");
        }
        if (options_.vocab_mode) check_mode(layout, *options_.vocab_mode);
    }

    void check_mode(const StageLayout& layout, VocabMode mode) const {
        if (layout.sharded_input != layout.sharded_output) {
            fail("shards only one of embedding and output layer; use V for both, or E and L");
        }
        if (layout.sharded_output == sharded(mode)) return;
        fail("does not match vocabulary mode " + std::string(to_string(mode)) + "; use " +
             (sharded(mode) ? "V for sharded layers" : "E and L for whole layers") +
             ", or another mode");
    }

    std::string_view text_;
    const StageLayoutOptions& options_;
    size_t at_ = 0;
    std::vector<Symbol> symbols_;
    std::vector<std::vector<Symbol>> stages_;
};

void check_costs(int num_layers, std::span<const int> rank_of_stage, const LayerCosts& costs) {
    constexpr int kMostLayers = 1 << 20;
    if (num_layers < 0 || num_layers > kMostLayers) {
        throw UsageError("--num-layers " + std::to_string(num_layers) + ": must be from 0 to " +
                         std::to_string(kMostLayers));
    }
    if (rank_of_stage.empty()) throw UsageError("a partition of layers needs at least 1 stage");
    for (const int rank : rank_of_stage) {
        if (rank < 0) throw UsageError("rank " + std::to_string(rank) + ": must be at least 0");
    }
    const auto check = [](const char* name, double value, bool positive) {
        if (std::isfinite(value) && (positive ? value > 0 : value >= 0)) return;
        throw UsageError(std::string("cost of ") + name + " is " + std::to_string(value) +
                         ": must be a finite number" + (positive ? " above 0" : ", at least 0"));
    };
    check("a layer", costs.layer, true);
    check("the embedding", costs.embedding, false);
    check("the output layer", costs.output_layer, false);
    check("multi-token prediction", costs.mtp_layers, false);
}

/// Gives units, one by one, to the taker with the lowest cost; ties go to the first. This minimises
/// the highest cost, because all units cost the same.
class Filler {
public:
    explicit Filler(std::vector<double> cost) : cost_(std::move(cost)), units_(cost_.size(), 0) {
        for (size_t i = 0; i < cost_.size(); ++i) cheapest_.emplace(cost_[i], i);
    }
    /// Calls may_take(i) before giving a unit; a taker that is refused once gets no more.
    void fill(int units, double cost_of_unit, const std::function<bool(size_t)>& may_take) {
        while (units > 0 && !cheapest_.empty()) {
            const size_t taker = cheapest_.top().second;
            cheapest_.pop();
            if (!may_take(taker)) continue;
            cost_[taker] += cost_of_unit;
            ++units_[taker];
            cheapest_.emplace(cost_[taker], taker);
            --units;
        }
    }
    [[nodiscard]] const std::vector<double>& cost() const { return cost_; }
    [[nodiscard]] const std::vector<int>& units() const { return units_; }

private:
    using Entry = std::pair<double, size_t>;
    std::vector<double> cost_;
    std::vector<int> units_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> cheapest_;
};

}  // namespace

int StageLayout::num_layers() const {
    return std::accumulate(layers.begin(), layers.end(), 0);
}

StageLayout parse_stage_layout(std::string_view text, const StageLayoutOptions& options) {
    return LayoutParser(text, options).run();
}

std::string print_stage_layout(const StageLayout& layout) {
    constexpr size_t kWorthJoining = 3;
    const size_t stages = layout.layers.size();
    const auto body = [&](size_t stage) {
        const int layers = layout.layers[stage];
        std::string text;
        if (stage == 0) text += layout.sharded_input ? 'V' : 'E';
        if (layers > 3) {
            text += "t*" + std::to_string(layers);
        } else {
            text.append(static_cast<size_t>(layers), 't');
        }
        if (static_cast<int>(stage) == layout.mtp_stage) {
            text += 'm' + (layout.mtp_layers > 1 ? "*" + std::to_string(layout.mtp_layers) : "");
        }
        if (stage + 1 == stages) text += layout.sharded_output ? 'V' : 'L';
        return text;
    };
    std::string text;
    for (size_t stage = 0; stage < stages;) {
        const std::string one = body(stage);
        size_t same = 1;
        while (stage + same + 1 < stages && body(stage + same) == one) ++same;
        if (stage + 1 < stages && same >= kWorthJoining) {
            text += "(" + one + "|)*" + std::to_string(same);
            stage += same;
        } else {
            text += one + (stage + 1 < stages ? "|" : "");
            ++stage;
        }
    }
    return text;
}

std::vector<int> balanced_layers(int num_layers, std::span<const int> rank_of_stage,
                                 const LayerCosts& costs, VocabMode mode) {
    check_costs(num_layers, rank_of_stage, costs);
    const bool whole = mode == VocabMode::none || mode == VocabMode::redistributed;
    std::vector<double> of_stage(rank_of_stage.size(), 0);
    if (whole) {
        of_stage.front() += costs.embedding;
        of_stage.back() += costs.output_layer;
    }
    of_stage.back() += costs.mtp_layers;
    std::vector<int> used(rank_of_stage.begin(), rank_of_stage.end());
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    std::vector<size_t> rank_index;
    std::vector<double> of_rank(used.size(), 0);
    for (size_t stage = 0; stage < rank_of_stage.size(); ++stage) {
        const auto found = std::lower_bound(used.begin(), used.end(), rank_of_stage[stage]);
        rank_index.push_back(static_cast<size_t>(found - used.begin()));
        of_rank[rank_index.back()] += of_stage[stage];
    }
    // First the least possible work of the busiest rank, then the layers that every rank can take
    // within it.
    Filler ranks(of_rank);
    ranks.fill(num_layers, costs.layer, [](size_t) { return true; });
    const double busiest = *std::max_element(ranks.cost().begin(), ranks.cost().end());
    std::vector<int> room;
    for (size_t rank = 0; rank < of_rank.size(); ++rank) {
        // At least as many as above: rounding may have lost a layer in the quotient.
        const double more = std::min((busiest - of_rank[rank]) / costs.layer + 1e-9,
                                     static_cast<double>(num_layers));
        room.push_back(std::max(ranks.units()[rank], static_cast<int>(more)));
    }
    Filler stages(of_stage);
    stages.fill(num_layers, costs.layer,
                [&](size_t stage) { return room[rank_index[stage]]-- > 0; });
    return stages.units();
}

std::vector<int> layers_with_ends(int num_layers, std::span<const int> rank_of_stage,
                                  const EndLayers& ends) {
    const int first = rank_of_stage.front();
    const int last = rank_of_stage.back();
    std::string flags;
    if (ends.first >= 0) {
        flags = "--decoder-first-pipeline-num-layers " + std::to_string(ends.first);
    }
    if (ends.last >= 0) {
        flags += (flags.empty() ? "" : ", ") + std::string("--decoder-last-pipeline-num-layers ") +
                 std::to_string(ends.last);
    }
    if (first == last) {
        throw UsageError(flags +
                         ": this schedule has the first and last stages on one rank; use "
                         "--pipeline-model-parallel-layout");
    }
    std::map<int, int> of_rank;
    for (const int rank : rank_of_stage) of_rank[rank] = -1;
    of_rank[first] = ends.first;
    of_rank[last] = ends.last;
    int rest = num_layers;
    int others = 0;
    for (const auto& [rank, layers] : of_rank) {
        rest -= std::max(layers, 0);
        if (layers < 0) ++others;
    }
    if (rest < 0 || (others == 0 && rest > 0)) {
        throw UsageError(flags + ": " + std::to_string(num_layers) +
                         " layers cannot be divided over " + std::to_string(of_rank.size()) +
                         " ranks this way; " +
                         (rest < 0 ? std::to_string(-rest) + " too many are requested"
                                   : std::to_string(rest) + " are left over"));
    }
    for (auto& [rank, layers] : of_rank) {
        if (layers >= 0) continue;
        layers = (rest + others - 1) / others;
        rest -= layers;
        --others;
    }
    std::vector<int> of_stage;
    std::map<int, int> stages_left;
    for (const int rank : rank_of_stage) ++stages_left[rank];
    for (const int rank : rank_of_stage) {
        int& stages = stages_left[rank];
        of_stage.push_back((of_rank[rank] + stages - 1) / stages);
        of_rank[rank] -= of_stage.back();
        --stages;
    }
    return of_stage;
}

}  // namespace vocabpipe
