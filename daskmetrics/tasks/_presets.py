"""Named lists of benchmark tasks."""

from __future__ import annotations

from collections.abc import Mapping

LAYER_BY_LAYER: Mapping[str, str] = {
    "AmazonCounterfactualClassification": "classification",
    "AmazonReviewsClassification": "classification",
    "ArxivClusteringS2S": "clustering",
    "AskUbuntuDupQuestions": "reranking",
    "BIOSSES": "sts",
    "Banking77Classification": "classification",
    "BiorxivClusteringS2S": "clustering",
    "EmotionClassification": "classification",
    "MTOPDomainClassification": "classification",
    "MTOPIntentClassification": "classification",
    "MassiveIntentClassification": "classification",
    "MassiveScenarioClassification": "classification",
    "MedrxivClusteringS2S": "clustering",
    "MindSmallReranking": "reranking",
    "RedditClustering": "clustering",
    "SICK-R": "sts",
    "STS12": "sts",
    "STS13": "sts",
    "STS14": "sts",
    "STS15": "sts",
    "STS16": "sts",
    "STS17": "sts",
    "STSBenchmark": "sts",
    "SciDocsRR": "reranking",
    "SprintDuplicateQuestions": "pair_classification",
    "StackExchangeClustering": "clustering",
    "StackOverflowDupQuestions": "reranking",
    "ToxicConversationsClassification": "classification",
    "TweetSentimentExtractionClassification": "classification",
    "TwentyNewsgroupsClustering": "clustering",
    "TwitterSemEval2015": "pair_classification",
    "TwitterURLCorpus": "pair_classification",
}
"""Name and kind of the 32 tasks of "Layer by Layer" (Skean et al., 2025)."""

PRESETS: Mapping[str, tuple[str, ...]] = {
    "preset:layer-by-layer-32": tuple(f"mteb:{name}" for name in LAYER_BY_LAYER),
}
