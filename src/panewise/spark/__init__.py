"""WHERE: plans on Spark. Below the command line, the only importer of pyspark."""
