// SPDX-License-Identifier: Apache-2.0
#include "src/select/convert/export_table.hpp"

#include "src/select/files/graph_file.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/select/files/scores_file.hpp"
#include "src/select/files/subset_file.hpp"
#include "src/select/files/table_output.hpp"
#include "src/support/safetensors/reader.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace vocabpipe {

namespace {

using Kind = TableColumn::Kind;

constexpr int64_t kRowsAtOnce = 1 << 16;
constexpr int64_t kBytesAtOnce = 16 << 20;

double number_of(int32_t fixed_point) {
    return static_cast<double>(fixed_point) / kFixedPointOne;
}

std::string format_of(const std::string& path) {
    const SafetensorsFile file(path);
    const auto& metadata = file.header().metadata;
    const auto found = metadata.find("format");
    return found == metadata.end() ? "" : found->second;
}

/// The columns to write for scores.
std::vector<TableColumn> columns_of_scores(const ScoresInfo& info, const std::string& input,
                                           const std::string& output, const std::string& wanted) {
    std::vector<TableColumn> columns;
    std::string names;
    const auto add = [&](const std::string& name, bool has, Kind kind, int64_t width) {
        if (!has) return;
        names += (names.empty() ? "" : ", ") + name;
        if (wanted.empty() || wanted == name) columns.push_back({name, kind, width});
    };
    add("utility", !info.utility_kind.empty(), Kind::number, 1);
    add("embedding", info.hidden_size > 0, Kind::number_list, info.hidden_size);
    add("loss", info.loss, Kind::number, 1);
    if (columns.empty()) {
        throw UsageError("--column " + wanted + ": " + input + " has " + names);
    }
    if (is_parquet(output)) {
        columns.insert(columns.begin(), {.name = "id", .kind = Kind::integer});
    } else if (columns.size() > 1) {
        throw UsageError("--output " + output + ": holds one column, " + input + " has " + names +
                         "; choose one with --column, or use .parquet");
    }
    return columns;
}

int64_t export_scores(const std::string& input, const std::string& output,
                      const std::string& wanted) {
    const ScoresReader scores(input);
    const auto columns = columns_of_scores(scores.info(), input, output, wanted);
    const int64_t samples = scores.samples();
    const int64_t width = std::max<int64_t>(scores.info().hidden_size, 1);
    const int64_t at_once = std::clamp<int64_t>(
        kBytesAtOnce / static_cast<int64_t>(sizeof(float)) / width, 1, kRowsAtOnce);
    const auto table = create_table(output, columns, samples);
    std::vector<int64_t> ids;
    std::vector<int32_t> fixed;
    std::vector<float> embeddings;
    std::vector<float> losses;
    std::vector<double> utilities;
    std::vector<double> wide_losses;
    for (int64_t first = 0; first < samples; first += at_once) {
        const auto rows = static_cast<size_t>(std::min(at_once, samples - first));
        std::vector<ColumnValues> values;
        for (const TableColumn& column : columns) {
            if (column.name == "id") {
                ids.resize(rows);
                std::iota(ids.begin(), ids.end(), first);
                values.push_back({.integers = ids});
            } else if (column.name == "utility") {
                fixed.resize(rows);
                scores.read_utility(first, fixed);
                utilities.resize(rows);
                std::ranges::transform(fixed, utilities.begin(), number_of);
                values.push_back({.numbers = utilities});
            } else if (column.name == "embedding") {
                embeddings.resize(rows * static_cast<size_t>(width));
                scores.read_embedding(first, embeddings);
                values.push_back({.lists = embeddings});
            } else {
                losses.resize(rows);
                scores.read_loss(first, losses);
                wide_losses.assign(losses.begin(), losses.end());
                values.push_back({.numbers = wide_losses});
            }
        }
        table->write(static_cast<int64_t>(rows), values);
    }
    table->publish();
    return samples;
}

int64_t export_edges(const std::string& input, const std::string& output) {
    const GraphFile graph(input);
    const auto table = create_table(output,
                                    {{.name = "src", .kind = Kind::integer},
                                     {.name = "dst", .kind = Kind::integer},
                                     {.name = "weight", .kind = Kind::number}},
                                    graph.entries() / 2);
    std::vector<int64_t> sources;
    std::vector<int64_t> destinations;
    std::vector<double> weights;
    int64_t written = 0;
    const auto write = [&] {
        table->write(std::ssize(sources),
                     {{.integers = sources}, {.integers = destinations}, {.numbers = weights}});
        written += std::ssize(sources);
        sources.clear();
        destinations.clear();
        weights.clear();
    };
    GraphRows rows(graph);
    for (int64_t v = 0; v < graph.nodes(); ++v) {
        const GraphRow row = rows.at(v);
        for (size_t i = 0; i < row.degree(); ++i) {
            if (row.neighbours[i] < v) continue;  // written with the other row
            sources.push_back(v);
            destinations.push_back(row.neighbours[i]);
            weights.push_back(number_of(row.similarities[i]));
            if (std::ssize(sources) == kRowsAtOnce) write();
        }
    }
    if (!sources.empty()) write();
    if (2 * written != graph.entries()) {
        throw InputFileError(input + ": " + std::to_string(written) + " of " +
                             std::to_string(graph.entries()) +
                             " entries have the smaller number in their row, not half of them; "
                             "an edge must stand in both of its rows");
    }
    table->publish();
    return written;
}

int64_t export_subset(const std::string& input, const std::string& output) {
    const SubsetReader subset(input);
    const auto table =
        create_table(output, {{.name = "id", .kind = Kind::integer}}, subset.count());
    std::vector<int64_t> ids;
    for (int64_t first = 0; first < subset.count(); first += std::ssize(ids)) {
        ids.resize(static_cast<size_t>(std::min(kRowsAtOnce, subset.count() - first)));
        subset.read(first, ids);
        table->write(std::ssize(ids), {{.integers = ids}});
    }
    table->publish();
    return subset.count();
}

}  // namespace

ExportReport export_table(const std::string& input, const std::string& output,
                          const std::string& column) {
    const std::string format = format_of(input);
    if (format.starts_with("vocabpipe scores ")) {
        return {.what = "scores", .rows = export_scores(input, output, column)};
    }
    if (!column.empty()) {
        throw UsageError("--column " + column + ": " + input + " has no such columns: it is a \"" +
                         readable(format) + '"');
    }
    if (format.starts_with("vocabpipe graph ")) {
        return {.what = "graph", .rows = export_edges(input, output)};
    }
    if (format.starts_with("vocabpipe subset ")) {
        return {.what = "subset", .rows = export_subset(input, output)};
    }
    throw InputFileError(input +
                         ": is no file of scores, graph or subset of vocabpipe select: its "
                         "format is \"" +
                         readable(format) + '"');
}

}  // namespace vocabpipe
