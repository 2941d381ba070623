"""Migration from Colab to a local machine; today the contract that local assets keep."""
