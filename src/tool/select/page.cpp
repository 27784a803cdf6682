// SPDX-License-Identifier: Apache-2.0
// vocabpipe select page: writes an HTML page about a selection.
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/select/files/fixed_point.hpp"
#include "src/select/files/graph_file.hpp"
#include "src/select/similar_groups.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/support/strict_json.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/data/sample_texts.hpp"
#include "src/tool/select/selection_page.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/quantity.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/select/chosen_samples.hpp"
#include "src/train/select/kept_shares.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

constexpr size_t kMostNotes = 100;
constexpr int64_t kMost = INT64_MAX;
constexpr size_t kMostSteps = 1'000'000;
constexpr int64_t kTexts = 8;  // per kind: chosen samples, and others

constexpr size_t kGroups = 8;        // the largest
constexpr double kSimilarity = 0.9;  // of near-duplicates
constexpr size_t kMembers = 2;       // per kind

struct PageArguments {
    std::string report, subset, html, tokenizer_model, graph;
    std::optional<double> similarity;
    DataOptions data;
};

int64_t count_at(const StrictJson& json, const char* key) {
    return json.at(key).integer(0, kMost);
}

SelectionPage read_report(const std::string& path) {
    const StrictJson json = StrictJson::parse(
        read_whole_file(path, "use the file that vocabpipe select run --report wrote"), path);
    if (!json.has("vocabpipe_selection")) {
        json.fail("is not a report of vocabpipe select run; make one with --report");
    }
    (void)json.at("vocabpipe_selection").integer(1, 1);
    SelectionPage page{.samples = count_at(json, "samples"), .chosen = count_at(json, "chosen")};
    const StrictJson bounding = json.at("bounding");
    for (const StrictJson& step : bounding.at("steps").items(kMostSteps)) {
        const std::string kind = step.at("kind").text();
        if (kind != "grow" && kind != "shrink") step.at("kind").fail("must be grow or shrink");
        page.steps.push_back({.grow = kind == "grow", .decided = count_at(step, "count")});
    }
    for (const StrictJson& round : json.at("rounds").items(kMostSteps)) {
        page.rounds.push_back(
            {.input = count_at(round, "input"),
             .kept = count_at(round, "kept"),
             .partitions = count_at(round, "partitions"),
             .objective = static_cast<double>(round.at("objective").integer(-kMost, kMost)) /
                          kFixedPointOne});
    }
    page.title =
        std::to_string(page.chosen) + " of " + std::to_string(page.samples) + " samples chosen";
    page.facts = {
        {"subset", json.at("output").text()},
        {"graph", json.at("inputs").at("graph").text() + ", " +
                      std::to_string(count_at(json, "edges")) + " edges"},
        {"utility", json.at("inputs").at("utility").text()},
        {"bounding", std::to_string(count_at(bounding, "selected")) + " selected, " +
                         std::to_string(count_at(bounding, "discarded")) + " discarded, " +
                         std::to_string(count_at(bounding, "open")) + " left to greedy"},
        {"objective",
         format("%.6g", static_cast<double>(json.at("objective").integer(-kMost, kMost)) /
                            kFixedPointOne)}};
    // Reports of earlier versions have neither.
    if (json.has("certificate") && !json.at("certificate").is_null()) {
        const StrictJson certificate = json.at("certificate");
        if (!certificate.at("bound").is_null()) {
            page.facts.emplace_back(
                "no choice has more than",
                format("%.6g", static_cast<double>(certificate.at("bound").integer(-kMost, kMost)) /
                                   kFixedPointOne));
        }
        if (!certificate.at("percent").is_null()) {
            page.facts.emplace_back("certain share of the best",
                                    format("%.2f %%", certificate.at("percent").number(0, 100)));
        }
    }
    if (json.has("notes")) {
        for (const StrictJson& note : json.at("notes").items(kMostNotes)) {
            page.facts.emplace_back("note", note.text());
        }
    }
    std::string flags;
    for (const auto& [flag, value] : json.at("flags").members()) {
        flags += (flags.empty() ? "" : " ") + flag + " " + value.text();
    }
    page.facts.emplace_back("flags", flags);
    page.facts.emplace_back(
        "memory per rank",
        bytes_text(static_cast<uint64_t>(count_at(json.at("memory"), "peak_bytes"))));
    return page;
}

/// The subset file determines the length of the samples; this command has no flag for it.
Corpus corpus_of(const TrainingData& data, const PageArguments& o, int64_t seq_length) {
    if (seq_length == 0) {
        throw InputFileError(o.subset +
                             ": does not say how many tokens its samples have, so that --data-path "
                             "cannot be divided into them; leave out --subset and --data-path");
    }
    try {
        return training_corpus(data, seq_length);
    } catch (const InputFileError& error) {
        if (std::string_view(error.what()).find("--seq-length") == std::string_view::npos) throw;
        throw InputFileError("--data-path: has no sample of the " + std::to_string(seq_length) +
                             " tokens that those of " + o.subset +
                             " have; give the data that they are of");
    }
}

void add_groups(SelectionPage& page, const PageArguments& o, const SubsetReader& subset,
                const TrainingData& data) {
    const GraphFile graph(o.graph);
    Corpus::check_same(graph.corpus(), o.graph, subset.info().corpus, o.subset);
    const LongWork work("reading " + o.graph);
    const double similarity = o.similarity.value_or(kSimilarity);
    const SimilarGroups found =
        similar_groups(graph, subset, to_fixed_point(similarity), kGroups, kMembers);
    page.about_groups =
        counted(found.samples, "sample") + " are in " + counted(found.groups, "group") +
        ", whose samples are connected by similarities of at least " + format("%g", similarity) +
        "; " + std::to_string(found.chosen) + " of these samples were chosen, and of " +
        counted(found.without, "group") + " nothing";
    std::vector<int64_t> samples;
    for (const SimilarGroup& group : found.largest) {
        for (const auto* some : {&group.some_chosen, &group.some_left_out}) {
            samples.insert(samples.end(), some->begin(), some->end());
        }
    }
    std::vector<SampleText> texts =
        texts_of_samples(data, subset.info().corpus.seq_length, o.tokenizer_model, samples);
    auto next = texts.begin();
    const auto take = [&](size_t count) {
        const auto begin = std::exchange(next, next + static_cast<std::ptrdiff_t>(count));
        return std::vector<SampleText>(begin, next);
    };
    for (const SimilarGroup& group : found.largest) {
        SelectionPage::Group& shown = page.groups.emplace_back();
        shown.samples = group.samples;
        shown.chosen = group.chosen;
        shown.some_chosen = take(group.some_chosen.size());
        shown.some_left_out = take(group.some_left_out.size());
    }
}

void write_page(const PageArguments& o) {
    OutputCheck check({o.report, o.subset, o.tokenizer_model, o.graph});
    check.add("--html", o.html, page_output());
    if (o.subset.empty() != o.data.path.empty()) {
        throw UsageError(o.subset.empty() ? "--data-path: needs --subset"
                                          : "--subset: needs --data-path");
    }
    if (!o.tokenizer_model.empty() && o.subset.empty()) {
        throw UsageError("--tokenizer-model: needs --subset and --data-path, whose texts it shows");
    }
    if (!o.graph.empty() && o.subset.empty()) {
        throw UsageError("--graph: needs --subset and --data-path, whose samples it groups");
    }
    if (o.similarity && o.graph.empty()) {
        throw UsageError("--similarity: needs --graph, whose samples it groups");
    }
    SelectionPage page = read_report(o.report);
    if (!o.subset.empty()) {
        const SubsetReader subset(o.subset);
        const TrainingData data(o.data);
        const Corpus corpus = corpus_of(data, o, subset.info().corpus.seq_length);
        Corpus::check_same(subset.info().corpus, o.subset, corpus, "--data-path");
        if (subset.count() != page.chosen || corpus.samples != page.samples) {
            throw InputFileError(o.subset + ": has " + std::to_string(subset.count()) + " of " +
                                 std::to_string(corpus.samples) + " samples, but " + o.report +
                                 " is about " + std::to_string(page.chosen) + " of " +
                                 std::to_string(page.samples) + "; use files of one run");
        }
        for (KeptShare& share : kept_shares(data, subset)) {
            page.sources.push_back({.name = std::move(share.source),
                                    .samples = share.samples,
                                    .chosen = share.chosen});
        }
        page.texts = sample_texts(data, subset, o.tokenizer_model, kTexts);
        if (!o.graph.empty()) add_groups(page, o, subset, data);
    }
    OutputFile file(o.html);
    file.write(page.html());
    file.publish();
    std::printf("%s: %s; open it in a browser\n", o.html.c_str(),
                counted(page.samples, "sample").c_str());
}

}  // namespace

Command select_page_command() {
    const auto o = std::make_shared<PageArguments>();
    return {
        .name = "page",
        .description =
            "Write a page about a selection, for a browser\n"
            "  vocabpipe select page --report report.json --html page.html\n"
            "      --subset subset.safetensors --data-path corpus",
        .flags = {{.flags = {{.names = "--report",
                              .value = &o->report,
                              .help = "Report of vocabpipe select run",
                              .unit = "FILE",
                              .required = true},
                             {.names = "--html",
                              .value = &o->html,
                              .help = "File for a self-contained page",
                              .unit = "FILE",
                              .required = true},
                             {.names = "--subset",
                              .value = &o->subset,
                              .help = "The chosen samples: shows how much of every document, or "
                                      "data set of a blend, is kept, and texts of some samples "
                                      "beside texts of some left out",
                              .unit = "FILE"},
                             {.names = "--data-path",
                              .value = &o->data.path,
                              .help = "The data that the samples are of, as given to select "
                                      "score",
                              .unit = "PATH"},
                             {.names = "--graph",
                              .value = &o->graph,
                              .help = "Graph that was chosen from: shows what is kept of groups "
                                      "of similar samples, with texts; takes 17 bytes per sample",
                              .unit = "FILE"},
                             {.names = "--similarity",
                              .value = &o->similarity,
                              .help = "Samples as similar as this are in one group",
                              .range = between(0, 1),
                              .unset = "0.9"},
                             {.names = "--tokenizer-model",
                              .value = &o->tokenizer_model,
                              .help = "Tokenizer for showing text: a file, or a folder",
                              .unit = "FILE",
                              .unset = "the one beside PREFIX.bin"},
                             {.names = "--split",
                              .value = &o->data.split,
                              .help = "As given to select score"},
                             {.names = "--data-format",
                              .value = &o->data.format,
                              .help = "As given to select score",
                              .choices = {"auto", "raw-u8", "raw-u16", "raw-u32"}}}}},
        .run = [o](const GivenFlags&) { write_page(*o); }};
}

}  // namespace vocabpipe::tool
