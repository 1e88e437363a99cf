# SPDX-License-Identifier: Apache-2.0
"""Records what TensorFlow says of ops that came late: distributions, rows of different lengths,
characters, summaries, parsers.

    python record_further.py
writes ../goldens/opdefs/ops_further.pb; see record_kernels.py.
"""
import os

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import op_def_registry

HERE = os.path.dirname(os.path.abspath(__file__))

OPS = """
AnonymousIterator AnonymousIteratorV2 AnonymousMemoryCache AnonymousMultiDeviceIterator
AnonymousRandomSeedGenerator AnonymousSeedGenerator AudioSummary AudioSummaryV2 ConsumeMutexLock
Copy CopyHost DecodeCompressed DeleteIterator DeleteMemoryCache DeleteMultiDeviceIterator
DeleteRandomSeedGenerator DeleteSeedGenerator IteratorGetDevice MutexLock MutexV2
NonDeterministicInts ParameterizedTruncatedNormal ParseSequenceExample ParseSingleSequenceExample
PlaceholderV2 RaggedBincount RaggedGather RaggedTensorFromVariant RaggedTensorToSparse
RaggedTensorToTensor RaggedTensorToVariant RaggedTensorToVariantGradient RandomCrop RandomDatasetV2
RandomGamma RandomGammaGrad RandomPoisson RandomPoissonV2 ReaderRestoreState ReaderRestoreStateV2
ReaderSerializeState ReaderSerializeStateV2 RebatchDataset SamplingDataset
ShuffleAndRepeatDatasetV2 ShuffleDatasetV2 SparseTensorSliceDataset StatefulRandomBinomial
StatefulStandardNormal StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform
StatefulUniformFullInt StatefulUniformInt StatelessParameterizedTruncatedNormal
StatelessRandomBinomial StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomPoisson
StringNGrams UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode WindowOp
""".split()


def record_definitions():
    ops = op_def_pb2.OpList(op=[op_def_registry.get(name) for name in OPS])
    with open(os.path.join(HERE, "..", "goldens", "opdefs", "ops_further.pb"), "wb") as file:
        file.write(ops.SerializeToString(deterministic=True))


def main():
    record_definitions()


if __name__ == "__main__":
    main()
