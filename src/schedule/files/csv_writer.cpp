// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/csv_header.hpp"
#include "src/schedule/files/lowered_tokens.hpp"
#include "src/schedule/files/tokens.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/schedule_file.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <utility>

namespace vocabpipe {

namespace {

/// Whether the first and last stage contain the vocabulary layers, as in PyTorch.
bool whole_at_the_ends(const Schedule& schedule) {
    const auto only_on = [](const ShardMap& map, int rank) {
        return map.vocab_size() == map.rows(rank);
    };
    return schedule.stages > 0 && only_on(schedule.input, schedule.rank_of_stage.front()) &&
           only_on(schedule.output, schedule.rank_of_stage.back());
}

std::vector<Pass> transformer_passes(const std::vector<Pass>& list) {
    std::vector<Pass> kept;
    for (const Pass& pass : list) {
        if (!traits(pass.op).vocabulary) kept.push_back(pass);
    }
    return kept;
}

}  // namespace

CsvDialect csv_dialect_of(const Schedule& schedule, CsvDialect dialect) {
    if (dialect != CsvDialect::automatic) return dialect;
    return whole_at_the_ends(schedule) && !has_recomputation(schedule) ? CsvDialect::current
                                                                       : CsvDialect::vocabpipe;
}

std::string print_schedule_csv(const Schedule& schedule, CsvDialect asked) {
    const CsvDialect dialect = csv_dialect_of(schedule, asked);
    const bool extended = dialect == CsvDialect::vocabpipe;
    if (!extended && !whole_at_the_ends(schedule)) {
        throw UsageError("dialect " + std::string(to_string(dialect)) +
                         ": PyTorch's files have no passes for vocabulary layers away from the "
                         "first and last stage; write the dialect vocabpipe, or JSON");
    }
    if (!extended && has_recomputation(schedule)) {
        throw UsageError("dialect " + std::string(to_string(dialect)) +
                         ": PyTorch's files have no recomputation passes (R); write the dialect "
                         "vocabpipe, or JSON");
    }
    std::string text;
    if (extended) text += files::print_csv_header(schedule) + "\r\n";
    std::vector<std::vector<Pass>> lists = schedule.passes;
    if (!extended) {
        for (std::vector<Pass>& list : lists) list = transformer_passes(list);
    }
    std::vector<std::vector<std::string>> rows;
    if (dialect == CsvDialect::lowered) {
        rows = files::lowered_tokens(schedule, lists);
    } else {
        for (const std::vector<Pass>& list : lists) rows.push_back(files::tokens_of(list, dialect));
    }
    for (const std::vector<std::string>& row : rows) {
        bool first = true;
        for (const std::string& token : row) {
            if (!std::exchange(first, false)) text += ',';
            text += token;
        }
        text += "\r\n";
    }
    return text;
}

}  // namespace vocabpipe
