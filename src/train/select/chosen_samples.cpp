// SPDX-License-Identifier: Apache-2.0
#include "src/train/select/chosen_samples.hpp"

#include "vocabpipe/error.hpp"

#include <cstdio>

namespace vocabpipe {

namespace {

/// Throws unless a file was made from the samples of `ours`.
void check_chosen_from(const Corpus& theirs, const Corpus& ours, const std::string& given) {
    const auto refuse = [&](const std::string& what) {
        throw InputFileError(given + ": was chosen from " + what +
                             "; use the data, --split and --seq-length of vocabpipe select score");
    };
    if (theirs.seq_length != 0 && theirs.seq_length != ours.seq_length) {
        refuse("samples of " + std::to_string(theirs.seq_length) + " tokens, but --seq-length is " +
               std::to_string(ours.seq_length));
    }
    if (theirs.samples != ours.samples) {
        refuse(std::to_string(theirs.samples) + " samples, but this training data has " +
               std::to_string(ours.samples));
    }
    if (!theirs.data.empty() && theirs.data != ours.data) {
        refuse("other data: " + readable(theirs.data) + ", but this is " + readable(ours.data));
    }
}

}  // namespace

Corpus training_corpus(const TrainingData& data, int64_t seq_length) {
    Corpus corpus{.data = {}, .seq_length = seq_length};
    for (const TrainingData::TrainingSet& set : data.training_sets(seq_length)) {
        corpus.data += (corpus.data.empty() ? "" : "\n") + set.identity;
        corpus.samples += set.samples;
    }
    return corpus;
}

ChosenSamples::ChosenSamples(const std::string& flag, const std::string& path,
                             const TrainingData& data, int64_t seq_length)
    : file_(path) {
    check_chosen_from(file_.info().corpus, training_corpus(data, seq_length), flag + " " + path);
    if (file_.count() == 0) {
        throw InputFileError(flag + " " + path + ": no sample is chosen; choose some");
    }
    char text[96];
    std::snprintf(text, sizeof text, "%lld of %lld samples, checksum %08x",
                  static_cast<long long>(file_.count()),
                  static_cast<long long>(file_.info().corpus.samples), file_.checksum());
    identity_ = text;
}

int64_t ChosenSamples::sample(int64_t position) const {
    int64_t sample = 0;
    file_.read(position, {&sample, 1});
    return sample;
}

}  // namespace vocabpipe
