// SPDX-License-Identifier: Apache-2.0
// The MNIST files, fetched from where they are published.
#ifndef EXAMPLES_MNIST_DOWNLOAD_H_
#define EXAMPLES_MNIST_DOWNLOAD_H_

#include <string>

#include "millrace/status.h"

namespace millrace::mnist {

// Folder of a public mirror that holds the four gzipped idx files.
inline constexpr const char* kDigitsUrl = "https://storage.googleapis.com/cvdf-datasets/mnist";

// Brings into `dir`, which is made, those of the four files from `url` that are absent there
// (plain, gzipped, or all of them as mnist.npz); what is there stays as it is. A file appears under
// its name only when it is whole. The program curl does it: a failure is Unavailable with its
// words, FailedPrecondition says that it is not installed. Returns after ten minutes a file at the
// latest, and after 30 seconds without a byte.
Status DownloadDigits(const std::string& dir, const std::string& url);

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_DOWNLOAD_H_
